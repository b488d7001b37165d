#include "spec/tables/text_recipe_keys.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/numbers.h"
#include "base/words.h"
#include "spec/limits.h"
#include "spec/tables/shared_rules.h"

namespace spec {
namespace {

constexpr std::string_view kLegalMoves = "train.legal_moves";

constexpr auto kCausalKeys = std::to_array<Key>({
    row::choice(kLegalMoves, "none", "none san uci",
                "For games of chess (muster data prepare --from chess): evaluations ask the model for moves in this "
                "notation, and report the share of legal ones.",
                into<&Causal::legal_moves>),
    row::whole("train.generated_samples", "64", {1, kMostSize},
               "How many moves an evaluation asks for, with legal_moves.", into<&Causal::generated_samples>, "samples"),
});

void check_causal(const Values& values, std::uint64_t /*ranks*/, std::vector<Conflict>& conflicts) {
  if (values.text(kLegalMoves) == "none" || !values.has(kLegalMoves) || !values.text("data.prepared").empty()) return;
  add_conflict(conflicts, kLegalMoves, "want none without data.prepared",
               "prepare games with muster data prepare --from chess", {"data.prepared"});
}

constexpr std::string_view kLoraRank = "train.lora_rank", kQuantizeBase = "train.quantize_base",
                           kReshardToRanks = "fsdp.reshard_to_ranks";

constexpr auto kLoraKeys = std::to_array<Key>({
    row::whole(kLoraRank, "0", {0, 65'536},
               "Rank of the low-rank adapters (LoRA) that train while the model's own weights stay; 0: the whole model "
               "trains. Needs model.pretrained. Checkpoints hold the adapters alone.",
               into<&Lora::rank>),
    row::real("train.lora_alpha", derived("2 x lora_rank"), above(0, 1e6),
              "An adapter's result is multiplied by lora_alpha / lora_rank.", into<&Lora::alpha>),
    row::real("train.lora_dropout", derived("0 with adapters"), {0, 0.99},
              "Share of an adapter's inputs that training sets to zero.", into<&Lora::dropout>),
    row::text("train.lora_layers", derived("those that PEFT has for the family"),
              "Linear layers that get an adapter: the last parts of their names, with spaces between.",
              into<&Lora::layers>),
    row::choice(kQuantizeBase, "none", "none nf4 int8",
                "QLoRA: in which format the matrices of the model's layers are kept and gathered. nf4 takes 4.5 bits a "
                "weight, and int8 8.125. Embedding, head, norms and biases keep train.precision.",
                into<&Lora::base_format>),
    row::flag("train.export_merged", derived("true with adapters"),
              "Whether the export is a whole model with the adapters added to its weights. false: the adapters alone, "
              "as PEFT reads them.",
              into<&Lora::merged>),
});

constexpr auto kWithRank = std::to_array<std::string_view>(
    {"train.lora_alpha", "train.lora_dropout", "train.lora_layers", "train.export_merged"});

void derive_lora(Values& values, std::uint64_t /*ranks*/) {
  if (values.whole(kLoraRank) == 0) return;
  set_default(values, "train.lora_alpha", 2.0 * static_cast<double>(values.whole(kLoraRank)));
  set_default(values, "train.lora_dropout", 0.0);
  set_default(values, "train.export_merged", true);
}

bool quantizes_base(const Values& values) {
  return values.has(kQuantizeBase) && values.text(kQuantizeBase) != "none";
}

void check_lora(const Values& values, std::uint64_t /*ranks*/, std::vector<Conflict>& conflicts) {
  if (values.whole(kLoraRank) == 0) {
    for (const auto key : kWithRank) {
      if (!values.has(key)) continue;
      add_conflict(conflicts, key, "want train.lora_rank above 0 with it", "leave it out", {kLoraRank});
    }
    if (quantizes_base(values)) {
      add_conflict(conflicts, kQuantizeBase,
                   "want train.lora_rank above 0 with it, because what is quantised cannot train",
                   "give train.lora_rank, or leave it out", {kLoraRank});
    }
  } else if (values.text("model.pretrained").empty()) {
    add_conflict(conflicts, kLoraRank,
                 "want model.pretrained with it, because adapters change a model that is trained already",
                 "give model.pretrained, or leave it out", {"model.pretrained"});
  }
  if (quantizes_base(values) && values.has(kReshardToRanks) && values.whole(kReshardToRanks) > 0) {
    add_conflict(conflicts, kReshardToRanks, "want 0 with train.quantize_base",
                 "leave it out; what is gathered again for backward is small already", {kQuantizeBase});
  }
}

constexpr auto kMaskedLmKeys = std::to_array<Key>({
    row::real("train.mask_share", "0.15", above(0, 0.9),
              "Probability that a token is predicted. Of the predicted tokens 80 % are masked, 10 % replaced by a "
              "random token, and 10 % kept, as in BERT. Special tokens and padding are never predicted.",
              into<&MaskedLm::mask_share>),
});

constexpr std::string_view kObjective = "train.objective", kDensity = "train.span_density",
                           kLength = "train.span_length";

constexpr auto kSeq2seqKeys = std::to_array<Key>({
    row::whole("data.target_length", "64", {2, kMostSize},
               "The most tokens of a target, special ones included; longer targets are cut.",
               into<&Seq2Seq::target_length>, "tokens"),
    row::choice(kObjective, "pairs", "pairs spans",
                "pairs: answer an input with its target. spans: fill in what was cut out of a text, as T5 was trained "
                "first.",
                into<&Seq2Seq::objective>),
    row::real(kDensity, derived("0.15 with spans"), above(0, 0.9), "Share of a text's tokens that is cut out.",
              into<&Seq2Seq::span_density>),
    row::real(kLength, derived("3 with spans"), {1, 1000}, "Mean length of what is cut out.",
              into<&Seq2Seq::span_length>, "tokens"),
    row::flag("train.rouge", "true",
              "Whether evaluations write answers and compare them with the targets (ROUGE). For pairs.",
              into<&Seq2Seq::rouge>),
    row::whole("train.generated_samples", "64", {1, kMostSize}, "How many answers an evaluation writes.",
               into<&Seq2Seq::generated_samples>, "samples"),
});

void derive_seq2seq(Values& values, std::uint64_t /*ranks*/) {
  if (values.text(kObjective) != "spans") return;
  set_default(values, kDensity, 0.15);
  set_default(values, kLength, 3.0);
}

void check_seq2seq(const Values& values, std::uint64_t /*ranks*/, std::vector<Conflict>& conflicts) {
  if (values.text(kObjective) == "spans") return;
  for (const auto key : {kDensity, kLength}) {
    if (!values.has(key)) continue;
    add_conflict(conflicts, key, "want objective = \"spans\" with it", "leave it out", {kObjective});
  }
}

constexpr auto kClassifyKeys = std::to_array<Key>({
    row::flag("train.freeze_encoder", "false",
              "Whether only the head trains: the classifier and the pooler below it. The embeddings and the blocks "
              "keep their values.",
              into<&Classify::freeze_encoder>),
    row::choice(
        "train.head", "by_name", "by_name by_number new",
        "What becomes of the last layer of a pretrained classifier. by_name: its rows belong to the labels that "
        "config.json names, which must be the data's; by_number: its rows are in the order of the data's "
        "labels; new: it is drawn, as for other labels or another number of them.",
        into<&Classify::head>),
    row::text("train.class_weights", "none",
              "How much a sample counts by its class. none: all alike; balanced: samples / (classes x samples of the "
              "class), so that each class counts alike; or a number for each class in the order of the data's "
              "labels, such as \"1 2.5 1\".",
              into<&Classify::class_weights>),
});

void check_classify(const Values& values, std::uint64_t /*ranks*/, std::vector<Conflict>& conflicts) {
  const auto weights = values.text("train.class_weights");
  if (weights.empty() || weights == "none" || weights == "balanced" || class_weight_numbers(weights)) return;
  add_conflict(conflicts, "train.class_weights",
               "want none, balanced, or a number of at least 0 for each class, not all 0",
               "two classes could have \"1 2.5\"");
}

}  // namespace

const Table& causal() {
  static const Table table{"causal_lm", kCausalKeys, nullptr, check_causal};
  return table;
}

const Table& lora() {
  static const Table table{"lora", kLoraKeys, derive_lora, check_lora};
  return table;
}

const Table& masked_lm() {
  static const Table table{"masked_lm", kMaskedLmKeys};
  return table;
}

const Table& seq2seq() {
  static const Table table{"seq2seq", kSeq2seqKeys, derive_seq2seq, check_seq2seq};
  return table;
}

const Table& classify() {
  static const Table table{"classify", kClassifyKeys, nullptr, check_classify};
  return table;
}

std::optional<std::vector<double>> class_weight_numbers(std::string_view text) {
  std::vector<double> numbers;
  for (const auto& word : base::split(text, ' ')) {
    if (word.empty()) continue;
    const auto number = base::real_number(word);
    if (!number || !std::isfinite(*number) || *number < 0) return std::nullopt;
    numbers.push_back(*number);
  }
  if (numbers.size() < 2 || std::ranges::max(numbers) == 0) return std::nullopt;
  return numbers;
}

std::optional<Conflict> conflict_with_classes(const Classify& options, std::int64_t classes) {
  const auto numbers = class_weight_numbers(options.class_weights);
  if (!numbers || static_cast<std::int64_t>(numbers->size()) == classes) return std::nullopt;
  return Conflict{
      "train.class_weights",
      "has " + std::to_string(numbers->size()) + " numbers, and the data have " + std::to_string(classes) + " classes",
      "give a number for each class, or balanced",
      {}};
}

}  // namespace spec
