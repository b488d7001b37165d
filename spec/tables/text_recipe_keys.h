#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spec/table.h"

namespace spec {

/// The notation in which a model is asked for moves of chess.
enum class LegalMoves { kNone, kSan, kUci };

/// The settings that a training of a decoder has of its own.
struct Causal {
  LegalMoves legal_moves = LegalMoves::kNone;
  std::int64_t generated_samples = 0;
};

const Table& causal();  // the rows of Causal

/// How the matrices of a model are kept that adapters are added to.
enum class BaseFormat { kNone, kNf4, kInt8 };

/// Low-rank adapters of a model whose own weights stay as they are.
struct Lora {
  std::int64_t rank = 0;  // 0: none; the whole model trains
  double alpha = 0;       // an adapter is multiplied by alpha / rank
  double dropout = 0;
  std::string layers;  // last parts of the names of linear layers, with spaces between
  BaseFormat base_format = BaseFormat::kNone;
  bool merged = true;  // whether the export has the adapters added to the weights
};

const Table& lora();  // the rows of Lora

/// The settings that a masked-language-model training has of its own.
struct MaskedLm {
  double mask_share = 0;  // probability that an ordinary token is predicted
};

const Table& masked_lm();  // the rows of MaskedLm

/// The task that an encoder-decoder learns: to answer inputs, or to fill in spans that were cut out of texts.
enum class Objective { kPairs, kSpans };

/// The settings that a training of an encoder-decoder has of its own.
struct Seq2Seq {
  Objective objective = Objective::kPairs;
  std::int64_t target_length = 0;  // tokens, special ones included
  double span_density = 0, span_length = 0;
  bool rouge = true;
  std::int64_t generated_samples = 0;
};

const Table& seq2seq();  // the rows of Seq2Seq

/// The fate of the last layer of a pretrained classifier.
enum class ClassHead {
  kByName,    ///< its rows are those of the labels that config.json names
  kByNumber,  ///< its rows are in the order of the data's labels
  kNew        ///< it is drawn
};

/// The settings that a training of a classifier has of its own.
struct Classify {
  bool freeze_encoder = false;
  ClassHead head = ClassHead::kByName;
  std::string class_weights;  // "none", "balanced", or a number for each class
};

const Table& classify();  // the rows of Classify

/// The numbers of train.class_weights, separated by spaces: at least two, each finite and not negative, one of them
/// above 0. nullopt for any other text, "none" and "balanced" included.
std::optional<std::vector<double>> class_weight_numbers(std::string_view text);

/// The conflict of train.class_weights with data of so many classes. nullopt: there is none.
std::optional<Conflict> conflict_with_classes(const Classify& options, std::int64_t classes);

}  // namespace spec
