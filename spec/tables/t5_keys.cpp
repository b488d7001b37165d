#include "spec/tables/t5_keys.h"

#include <array>
#include <utility>

#include "spec/limits.h"

namespace spec {
namespace {

constexpr auto kT5Keys = std::to_array<Key>({
    {.name = "model.vocab_size",
     .kind = Kind::kWhole,
     .derived = "what the data needs",
     .low = 2,
     .high = kMostSize,
     .meaning = "Size of the vocabulary.",
     .assign = into<&T5::vocab_size>},
    {.name = "model.d_model",
     .kind = Kind::kWhole,
     .standard = "256",
     .low = 1,
     .high = kMostSize,
     .meaning = "Width of the model.",
     .assign = into<&T5::d_model>},
    {.name = "model.d_kv",
     .kind = Kind::kWhole,
     .standard = "64",
     .low = 1,
     .high = kMostSize,
     .meaning = "Width of an attention head.",
     .assign = into<&T5::d_kv>},
    {.name = "model.d_ff",
     .kind = Kind::kWhole,
     .standard = "1024",
     .low = 1,
     .high = kMostSize,
     .meaning = "Width inside the feed-forward blocks.",
     .assign = into<&T5::d_ff>},
    {.name = "model.num_layers",
     .kind = Kind::kWhole,
     .standard = "3",
     .low = 1,
     .high = 10'000,
     .meaning = "Number of encoder blocks.",
     .assign = into<&T5::num_layers>},
    {.name = "model.num_decoder_layers",
     .kind = Kind::kWhole,
     .derived = "as many as num_layers",
     .low = 1,
     .high = 10'000,
     .meaning = "Number of decoder blocks.",
     .assign = into<&T5::num_decoder_layers>},
    {.name = "model.num_heads",
     .kind = Kind::kWhole,
     .standard = "4",
     .low = 1,
     .high = kMostSize,
     .meaning = "Number of attention heads.",
     .assign = into<&T5::num_heads>},
    {.name = "model.relative_attention_num_buckets",
     .kind = Kind::kWhole,
     .standard = "32",
     .low = 4,
     .high = kMostSize,
     .meaning = "Number of groups of distances that the attention's bias tells apart.",
     .assign = into<&T5::relative_attention_num_buckets>},
    {.name = "model.relative_attention_max_distance",
     .kind = Kind::kWhole,
     .standard = "128",
     .low = 1,
     .high = kMostSize,
     .unit = "tokens",
     .meaning = "Longer distances share the last bucket; above half of relative_attention_num_buckets.",
     .assign = into<&T5::relative_attention_max_distance>},
    {.name = "model.dropout_rate",
     .kind = Kind::kReal,
     .standard = "0.1",
     .low = 0,
     .high = 0.99,
     .meaning =
         "Share of the embeddings, the attention's probabilities and the blocks' outputs that training sets to zero.",
     .assign = into<&T5::dropout_rate>},
    {.name = "model.layer_norm_epsilon",
     .kind = Kind::kReal,
     .standard = "1e-6",
     .low = 0,
     .high = 0.1,
     .above_low = true,
     .meaning = "Keeps the norm from dividing by zero.",
     .assign = into<&T5::layer_norm_epsilon>},
    {.name = "model.initializer_factor",
     .kind = Kind::kReal,
     .standard = "1",
     .low = 0,
     .high = 1000,
     .above_low = true,
     .meaning = "Multiplies T5's own sizes of the initial weights.",
     .assign = into<&T5::initializer_factor>},
    {.name = "model.feed_forward_proj",
     .kind = Kind::kChoice,
     .standard = "relu",
     .choices = "relu gelu silu gated-relu gated-gelu gated-silu",
     .meaning = "The nonlinear function of the feed-forward blocks. A gated one multiplies a second projection. T5 has "
                "relu, T5 1.1 and Flan-T5 have gated-gelu, which is GELU by tanh.",
     .assign = into<&T5::feed_forward_proj>},
    {.name = "model.tie_word_embeddings",
     .kind = Kind::kFlag,
     .standard = "true",
     .meaning = "Whether input and output embeddings share one table.",
     .assign = into<&T5::tie_word_embeddings>},
    {.name = "model.scale_decoder_outputs",
     .kind = Kind::kFlag,
     .standard = "true",
     .meaning = "Whether a shared table of embeddings reads the decoder's output divided by the root of d_model, as T5 "
                "has it. An output table of its own never does.",
     .assign = into<&T5::scale_decoder_outputs>},
    {.name = "model.pad_token_id",
     .kind = Kind::kWhole,
     .standard = "0",
     .low = 0,
     .high = kMostSize,
     .meaning = "The token that fills rows up.",
     .assign = into<&T5::pad_token_id>},
    {.name = "model.eos_token_id",
     .kind = Kind::kWhole,
     .standard = "1",
     .low = 0,
     .high = kMostSize,
     .meaning = "The token that ends a text.",
     .assign = into<&T5::eos_token_id>},
    {.name = "model.decoder_start_token_id",
     .kind = Kind::kWhole,
     .derived = "pad_token_id",
     .low = 0,
     .high = kMostSize,
     .meaning = "The token that the decoder reads first.",
     .assign = into<&T5::decoder_start_token_id>},
    {.name = "model.pretrained", .kind = Kind::kPath, .meaning = kPretrainedMeaning, .assign = into<&T5::pretrained>},
});

void derive_t5(Values& values, std::uint64_t /*ranks*/) {
  for (const auto& [name, like] : {std::pair{"model.num_decoder_layers", "model.num_layers"},
                                   {"model.decoder_start_token_id", "model.pad_token_id"}}) {
    if (!values.has(name) && values.has(like)) values.set(name, values.whole(like));
  }
}

void check_t5(const Values& values, std::uint64_t /*ranks*/, std::vector<Conflict>& conflicts) {
  auto found = conflicts_of(bind<T5>(t5(), values));
  conflicts.insert(conflicts.end(), found.begin(), found.end());
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
    conflicts.push_back({"model.relative_attention_max_distance",
                         "want above half of relative_attention_num_buckets = " + std::to_string(half),
                         "make it longer, or take fewer buckets",
                         {"model.relative_attention_num_buckets"}});
  }
  if (model.vocab_size <= 0) return conflicts;
  for (const auto& [key, id] : {std::pair{"model.pad_token_id", model.pad_token_id},
                                {"model.eos_token_id", model.eos_token_id},
                                {"model.decoder_start_token_id", model.decoder_start_token_id}}) {
    if (id < model.vocab_size) continue;
    conflicts.push_back({key,
                         "want a token below model.vocab_size = " + std::to_string(model.vocab_size),
                         "take one of the vocabulary",
                         {"model.vocab_size"}});
  }
  return conflicts;
}

}  // namespace spec
