#include <algorithm>

#include "jobfile/job_keys.h"
#include "jobfile/spec.h"

namespace jobfile {
namespace {

constexpr std::int64_t kBackoffMaxMs = 300'000;
constexpr std::int64_t kVouchedMs = 15'000;

void fill_recipe(muster::v1::JobSpec& spec) {
  const auto tables = tables_of(spec.recipe());
  auto values = values_of(spec, tables);
  schema::fill_defaults(values, tables, world_size(spec));
  for (const auto& [name, value] : values) {
    if (const auto* key = schema::find_key(tables, name)) set(spec, *key, value);
  }
}

}  // namespace

std::uint64_t world_size(const muster::v1::JobSpec& spec) {
  return std::uint64_t{spec.resources().nodes()} * spec.resources().ranks_per_node();
}

void fill_defaults(muster::v1::JobSpec& spec) {
  for (const auto& key : job_keys()) {
    const bool of_family = is_recipe_key(key) && schema::find_key(schema::recipe_tables(), key.name) != nullptr;
    if (key.standard.empty() || of_family || (is_recipe_key(key) && !spec.has_recipe()) || get(spec, key)) continue;
    set(spec, key, parse(key, key.standard).value());
  }
  if (spec.environment().empty()) spec.set_environment(spec.has_recipe() ? "clean" : "submit");
  if (spec.has_recipe()) fill_recipe(spec);
  auto& requeue = *spec.mutable_requeue();
  if (requeue.backoff_max_ms() == 0) {
    requeue.set_backoff_max_ms(std::max(kBackoffMaxMs, requeue.backoff_initial_ms()));
  }
  for (auto& job : *spec.mutable_after()) {
    if (!job.empty() && job.find_first_not_of("0123456789") == std::string::npos) job = "succeeded:" + job;
  }
  auto& liveness = *spec.mutable_liveness();
  if (liveness.silent_after_vouched_ms() == 0) {
    liveness.set_silent_after_vouched_ms(std::max(kVouchedMs, liveness.silent_after_ms()));
  }
}

}  // namespace jobfile
