#include "spec/tables/shared_rules.h"

#include <algorithm>
#include <utility>

namespace spec {
namespace {

constexpr const char* kPositions = "model.max_position_embeddings";
constexpr const char* kPrecision = "train.precision";
constexpr const char* kLength = "data.sequence_length";

}  // namespace

void add_conflict(std::vector<Conflict>& conflicts, std::string_view key, std::string want, std::string remedy,
                  std::initializer_list<std::string_view> related) {
  conflicts.push_back({std::string(key), std::move(want), std::move(remedy), {related.begin(), related.end()}});
}

void set_default(Values& values, std::string_view name, Value value) {
  if (!values.has(name)) values.set(name, std::move(value));
}

void want_scaled_loss(const Values& values, std::string_view key, std::vector<Conflict>& conflicts) {
  if (values.text(key) != "fp16" || values.text(kPrecision) == "fp16") return;
  add_conflict(conflicts, key, "want train.precision = \"fp16\" with it, because unscaled gradients vanish in fp16",
               "take \"bf16\"", {kPrecision});
}

void derive_positions(Values& values, std::int64_t usual) {
  set_default(values, kPositions, std::max(usual, values.whole(kLength)));
}

void want_positions(const Values& values, std::vector<Conflict>& conflicts) {
  const auto positions = values.whole(kPositions);
  if (values.whole(kLength) <= positions) return;
  add_conflict(conflicts, kLength, std::string("want at most ") + kPositions + " = " + std::to_string(positions),
               "shorten it, or leave max_position_embeddings out", {kPositions});
}

void want_no_kept_attention(const Values& values, std::vector<Conflict>& conflicts) {
  constexpr std::string_view kKeeps = "fsdp.activation_checkpointing_keeps";
  if (const auto kept = values.text(kKeeps); kept != "attention" && kept != "both") return;
  add_conflict(conflicts, kKeeps, "want \"linear\" or \"none\" with this model",
               "take one of them, because attention with masks of its own is always computed again");
}

bool want_even_heads(std::int64_t hidden, std::int64_t heads, std::vector<Conflict>& conflicts) {
  if (hidden % heads == 0) return true;
  add_conflict(conflicts, "model.hidden_size", "want a multiple of num_attention_heads = " + std::to_string(heads),
               multiples_near(hidden, heads), {"model.num_attention_heads"});
  return false;
}

}  // namespace spec
