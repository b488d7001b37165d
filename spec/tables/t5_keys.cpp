#include "spec/tables/t5_keys.h"

#include <array>
#include <utility>

#include "spec/limits.h"
#include "spec/tables/shared_rules.h"

namespace spec {
namespace {

constexpr auto kT5Keys = std::to_array<Key>({
    row::vocab_size(into<&T5::vocab_size>),
    row::whole("model.d_model", "256", {1, kMostSize}, "Width of the model.", into<&T5::d_model>),
    row::whole("model.d_kv", "64", {1, kMostSize}, "Width of an attention head.", into<&T5::d_kv>),
    row::whole("model.d_ff", "1024", {1, kMostSize}, "Width inside the feed-forward blocks.", into<&T5::d_ff>),
    row::whole("model.num_layers", "3", {1, 10'000}, "Number of encoder blocks.", into<&T5::num_layers>),
    row::whole("model.num_decoder_layers", derived("as many as num_layers"), {1, 10'000}, "Number of decoder blocks.",
               into<&T5::num_decoder_layers>),
    row::whole("model.num_heads", "4", {1, kMostSize}, "Number of attention heads.", into<&T5::num_heads>),
    row::whole("model.relative_attention_num_buckets", "32", {4, kMostSize},
               "Number of groups of distances that the attention's bias tells apart.",
               into<&T5::relative_attention_num_buckets>),
    row::whole("model.relative_attention_max_distance", "128", {1, kMostSize},
               "Longer distances share the last bucket; above half of relative_attention_num_buckets.",
               into<&T5::relative_attention_max_distance>, "tokens"),
    row::real(
        "model.dropout_rate", "0.1", {0, 0.99},
        "Share of the embeddings, the attention's probabilities and the blocks' outputs that training sets to zero.",
        into<&T5::dropout_rate>),
    row::norm_eps("model.layer_norm_epsilon", "1e-6", into<&T5::layer_norm_epsilon>),
    row::real("model.initializer_factor", "1", above(0, 1000), "Multiplies T5's own sizes of the initial weights.",
              into<&T5::initializer_factor>),
    row::choice("model.feed_forward_proj", "relu", "relu gelu silu gated-relu gated-gelu gated-silu",
                "The nonlinear function of the feed-forward blocks. A gated one multiplies a second projection. T5 has "
                "relu, T5 1.1 and Flan-T5 have gated-gelu, which is GELU by tanh.",
                into<&T5::feed_forward_proj>),
    row::tie_word_embeddings("true", into<&T5::tie_word_embeddings>),
    row::flag("model.scale_decoder_outputs", "true",
              "Whether a shared table of embeddings reads the decoder's output divided by the root of d_model, as T5 "
              "has it. An output table of its own never does.",
              into<&T5::scale_decoder_outputs>),
    row::whole("model.pad_token_id", "0", {0, kMostSize}, "The token that fills rows up.", into<&T5::pad_token_id>),
    row::whole("model.eos_token_id", "1", {0, kMostSize}, "The token that ends a text.", into<&T5::eos_token_id>),
    row::whole("model.decoder_start_token_id", derived("pad_token_id"), {0, kMostSize},
               "The token that the decoder reads first.", into<&T5::decoder_start_token_id>),
    row::pretrained(into<&T5::pretrained>),
});

void derive_t5(Values& values, std::uint64_t /*ranks*/) {
  for (const auto& [name, like] : {std::pair{"model.num_decoder_layers", "model.num_layers"},
                                   {"model.decoder_start_token_id", "model.pad_token_id"}}) {
    if (values.has(like)) set_default(values, name, values.whole(like));
  }
}

void check_t5(const Values& values, std::uint64_t /*ranks*/, std::vector<Conflict>& conflicts) {
  auto found = conflicts_of(bind<T5>(t5(), values));
  conflicts.insert(conflicts.end(), found.begin(), found.end());
  want_no_kept_attention(values, conflicts);
}

}  // namespace

std::string T5::activation() const {
  if (feed_forward_proj == "gated-gelu") return "gelu_new";
  return feed_forward_proj.substr(is_gated() ? std::string_view("gated-").size() : 0);
}

const Table& t5() {
  static const Table table{"t5", kT5Keys, derive_t5, check_t5};
  return table;
}

std::vector<Conflict> conflicts_of(const T5& model) {
  std::vector<Conflict> conflicts;
  // Half of the decoder's buckets hold one distance each, and the others share what is left up to the maximum.
  const auto half = model.relative_attention_num_buckets / 2;
  if (model.relative_attention_max_distance > 0 && model.relative_attention_max_distance <= half) {
    add_conflict(conflicts, "model.relative_attention_max_distance",
                 "want above half of relative_attention_num_buckets = " + std::to_string(half),
                 "make it longer, or take fewer buckets", {"model.relative_attention_num_buckets"});
  }
  if (model.vocab_size <= 0) return conflicts;
  for (const auto& [key, id] : {std::pair{"model.pad_token_id", model.pad_token_id},
                                {"model.eos_token_id", model.eos_token_id},
                                {"model.decoder_start_token_id", model.decoder_start_token_id}}) {
    if (id < model.vocab_size) continue;
    add_conflict(conflicts, key, "want a token below model.vocab_size = " + std::to_string(model.vocab_size),
                 "take one of the vocabulary", {"model.vocab_size"});
  }
  return conflicts;
}

}  // namespace spec
