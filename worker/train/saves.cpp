#include "worker/train/saves.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

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

namespace {

/// How many saves in a row may fail before the run gives up. So a disk that is full for a moment costs no training.
constexpr int kMostFailures = 3;

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

std::string milliseconds(double ms) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f ms", ms);
  return text;
}

}  // namespace

Saves::Saves(fsdp::Checkpointer& checkpointer, BestCheckpoint& best, agent::rank::Reporter& reporter, Options options)
    : checkpointer_(checkpointer), best_(best), reporter_(reporter), options_(std::move(options)) {}

void Saves::save(const fsdp::CheckpointState& state, bool must) {
  finish();
  reporter_.section(agent::rank::Section::kCheckpoint);
  finish_removal();
  reporter_.keep();
  under_way_ = UnderWay{state.step, Clock::now(), {}};
  if (options_.beside_training && !must) {
    checkpointer_.begin_save(state, best_.step());
    under_way_->blocked_ms = ms_since(under_way_->start);
  } else {
    settle([&] { return checkpointer_.save(state, best_.step()); }, must);
  }
  reporter_.section(agent::rank::Section::kStep);
}

void Saves::look() {
  if (!under_way_) return;
  if (const auto saved = checkpointer_.poll()) tell(*saved);
}

void Saves::finish() {
  if (!under_way_) return;
  reporter_.section(agent::rank::Section::kCheckpoint);
  settle([&] { return checkpointer_.wait().value(); }, /*must=*/false);
  reporter_.section(agent::rank::Section::kStep);
}

void Saves::finish_removal() {
  for (const auto& warning : checkpointer_.wait_for_removal()) options_.say("warning: " + warning);
}

template <class Outcome>
void Saves::settle(const Outcome& outcome, bool must) {
  try {
    tell(outcome());
  } catch (const fsdp::CheckpointFenced& error) {
    throw agent::rank::FencedError(error.what());
  } catch (const fsdp::CheckpointError& error) {
    const auto failed = *std::exchange(under_way_, std::nullopt);
    best_.dropped();
    if (must || ++failures_ >= kMostFailures) throw;
    options_.say("warning: step " + std::to_string(failed.step) + " is not saved, training goes on: " + error.what());
  }
}

void Saves::tell(const fsdp::SavedCheckpoint& saved) {
  const UnderWay done = *std::exchange(under_way_, std::nullopt);
  const double ms = ms_since(done.start);
  saved_step_ = done.step;
  failures_ = 0;
  reporter_.checkpoint_saved(done.step, saved.bytes / options_.world_size, ms);
  std::string line = "saved step " + std::to_string(done.step) + " in " + milliseconds(ms);
  if (done.blocked_ms) line += ", of which training stood still for " + milliseconds(*done.blocked_ms);
  options_.say(line + " (" + saved.path.native() + ")");
  if (best_.committed()) options_.say(best_.line(saved.path));
  for (const auto& warning : saved.warnings) options_.say("warning: " + warning);
}

}  // namespace worker
