#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spec/table.h"

namespace spec {

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

/// The rows of Classify.
const Table& classify();

/// The numbers of train.class_weights, separated by spaces: at least two, each finite and not negative, one of them
/// above 0. nullopt for any other text, "none" and "balanced" included.
std::optional<std::vector<double>> class_weight_numbers(std::string_view text);

/// The conflict of train.class_weights with data of so many classes. nullopt: there is none.
std::optional<Conflict> conflict_with_classes(const Classify& options, std::int64_t classes);

}  // namespace spec
