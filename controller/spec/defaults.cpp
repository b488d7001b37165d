#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "spec/fields.h"
#include "spec/spec.h"

namespace spec {
namespace {

constexpr std::uint32_t kMicroBatch = 8;
constexpr std::uint32_t kPositions = 2048;
constexpr std::uint32_t kWarmupSteps = 100;
constexpr std::int64_t kBackoffMaxMs = 300'000;
constexpr std::int64_t kVouchedMs = 15'000;

/// A tenth, as people would write it: of 3e-4 it is 3e-5, not 2.9999999999999997e-05.
double tenth_of(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.12g", value / 10);
  return std::strtod(text, nullptr);
}

void fill_batch(muster::v1::Train& train, std::uint64_t ranks) {
  if (train.micro_batch_size() == 0) {
    std::uint32_t micro = kMicroBatch;
    if (train.batch_size() != 0) {
      const auto share = train.batch_size() % ranks == 0 ? train.batch_size() / ranks : 1;
      while (share % micro != 0) --micro;  // ends at 1
    }
    train.set_micro_batch_size(micro);
  }
  if (train.batch_size() == 0) {
    const auto batch = std::min<std::uint64_t>(train.micro_batch_size() * ranks, UINT32_MAX);
    train.set_batch_size(static_cast<std::uint32_t>(batch));
  }
}

void fill_recipe(muster::v1::Recipe& recipe, std::uint64_t ranks) {
  auto& model = *recipe.mutable_model();
  if (model.num_key_value_heads() == 0) model.set_num_key_value_heads(model.num_attention_heads());
  if (model.max_position_embeddings() == 0) {
    model.set_max_position_embeddings(std::max(kPositions, recipe.data().sequence_length()));
  }
  auto& train = *recipe.mutable_train();
  fill_batch(train, ranks);
  if (!train.has_min_learning_rate()) train.set_min_learning_rate(tenth_of(train.learning_rate()));
  if (!train.has_warmup_steps()) train.set_warmup_steps(std::min(kWarmupSteps, train.steps() / 10));
}

}  // namespace

std::uint64_t world_size(const muster::v1::JobSpec& spec) {
  return std::uint64_t{spec.resources().nodes()} * spec.resources().ranks_per_node();
}

void fill_defaults(muster::v1::JobSpec& spec) {
  for (const auto& field : fields()) {
    if (field.standard.empty() || (is_recipe_field(field) && !spec.has_recipe()) || get(spec, field)) continue;
    set(spec, field, parse(field, field.standard).value());
  }
  if (spec.environment().empty()) spec.set_environment(spec.has_recipe() ? "clean" : "submit");
  if (spec.has_recipe()) fill_recipe(*spec.mutable_recipe(), world_size(spec));
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

}  // namespace spec
