#include "spec/tables/model_rules.h"

#include <algorithm>
#include <string>

namespace spec {
namespace {

constexpr const char* kPositions = "model.max_position_embeddings";
constexpr const char* kLength = "data.sequence_length";

}  // namespace

void derive_positions(Values& values, std::int64_t usual) {
  if (!values.has(kPositions)) values.set(kPositions, std::max(usual, values.whole(kLength)));
}

void want_positions(const Values& values, std::vector<Conflict>& conflicts) {
  const auto positions = values.whole(kPositions);
  if (values.whole(kLength) <= positions) return;
  conflicts.push_back({kLength,
                       std::string("want at most ") + kPositions + " = " + std::to_string(positions),
                       "shorten it, or leave max_position_embeddings out",
                       {kPositions}});
}

bool want_even_heads(std::int64_t hidden, std::int64_t heads, std::vector<Conflict>& conflicts) {
  if (hidden % heads == 0) return true;
  conflicts.push_back({"model.hidden_size",
                       "want a multiple of num_attention_heads = " + std::to_string(heads),
                       multiples_near(hidden, heads),
                       {"model.num_attention_heads"}});
  return false;
}

}  // namespace spec
