#include "worker/train/best_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "base/usage_error.h"
#include "spec/recipes.h"

namespace worker {

bool BestCheckpoint::is_better(double value) const {
  if (series().empty() || !std::isfinite(value)) return false;
  if (!kept_) return true;
  return series_.better == spec::Better::kHigher ? value > kept_->value : value < kept_->value;
}

bool BestCheckpoint::committed() {
  if (!offered_) return false;
  kept_ = std::exchange(offered_, std::nullopt);
  return true;
}

std::optional<std::int64_t> BestCheckpoint::step() const {
  const auto& choice = told();
  return choice ? std::optional(choice->step) : std::nullopt;
}

fsdp::Json BestCheckpoint::manifest() const {
  fsdp::Json out;
  const auto& choice = told();
  if (!choice) return out;
  out["series"] = series();
  out["value"] = choice->value;
  out["step"] = choice->step;
  return out;
}

bool BestCheckpoint::restore(const fsdp::Json& saved) {
  kept_.reset();
  offered_.reset();
  try {
    if (series().empty() || saved.at("series").as_string() != series()) return false;
    kept_ = Choice{saved.at("value").as_double(), saved.at("step").as_int()};
    return true;
  } catch (const fsdp::JsonError&) {
    return false;
  }
}

std::string BestCheckpoint::line(const std::filesystem::path& checkpoint) const {
  char value[32];
  std::snprintf(value, sizeof value, "%.6g", kept_->value);
  return "best " + series() + " " + value + " at step " + std::to_string(kept_->step) + " (kept in " +
         checkpoint.native() + ")";
}

spec::Series series_of(std::string_view recipe, const std::string& name) {
  const auto all = spec::series_of(recipe);
  const auto found = std::ranges::find(all, name, &spec::Series::name);
  if (found == all.end() || found->better == spec::Better::kNeither) {
    throw base::UsageError("checkpoint.best = \"" + name + "\": want a series of the recipe " + std::string(recipe) +
                           " whose lower or higher values are better; correct it, or leave it out");
  }
  return *found;
}

BestCheckpoint best_checkpoint_of(std::string_view recipe, const std::string& series) {
  return series.empty() ? BestCheckpoint() : BestCheckpoint(series_of(recipe, series));
}

}  // namespace worker
