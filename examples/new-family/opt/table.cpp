#include "opt/table.h"

#include <array>

#include "spec/limits.h"
#include "spec/tables/model_rules.h"

namespace spec {
namespace {

constexpr std::int64_t kOptPositions = 2048;

constexpr auto kOptKeys = std::to_array<Key>({
    row::vocab_size(into<&Opt::vocab_size>),
    row::hidden_size("256", into<&Opt::hidden_size>),
    row::whole("model.ffn_dim", "1024", {1, kMostSize}, "Width inside the feed-forward blocks.", into<&Opt::ffn_dim>),
    row::num_hidden_layers("4", into<&Opt::num_hidden_layers>),
    row::num_attention_heads("4", into<&Opt::num_attention_heads>),
    row::whole("model.max_position_embeddings", derived("2048, or data.sequence_length if that is longer"),
               {1, kMostSize}, "Longest sequence that the model takes.", into<&Opt::max_position_embeddings>, "tokens"),
    row::real("model.dropout", "0", {0, 0.99}, "Share of each block's results that training sets to zero.",
              into<&Opt::dropout>),
    row::real("model.init_std", "0.02", above(0, 1), "Standard deviation of the initial weights.",
              into<&Opt::init_std>),
    row::pretrained(into<&Opt::pretrained>),
});

void derive_opt(Values& values, std::uint64_t /*ranks*/) {
  derive_positions(values, kOptPositions);
}

void check_opt(const Values& values, std::uint64_t /*ranks*/, std::vector<Conflict>& conflicts) {
  want_even_heads(values.whole("model.hidden_size"), values.whole("model.num_attention_heads"), conflicts);
  want_positions(values, conflicts);
}

}  // namespace

const Table& opt() {
  static const Table table{"opt", kOptKeys, derive_opt, check_opt};
  return table;
}

}  // namespace spec
