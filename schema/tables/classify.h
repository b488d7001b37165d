#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schema/table.h"

namespace schema {

/// What a training of a classifier has of its own.
struct Classify {
  bool freeze_encoder = false;
  std::string class_weights;  // "none", "balanced", or a number for each class
};

/// The rows of Classify.
const Table& classify();

/// The numbers of train.class_weights, separated by spaces: at least two, each finite and not negative, one of them
/// above 0. nullopt for any other text, "none" and "balanced" included.
std::optional<std::vector<double>> class_weight_numbers(std::string_view text);

/// Whether train.class_weights fits data of so many classes. nullopt: it does.
std::optional<Conflict> conflict_with_classes(const Classify& options, std::int64_t classes);

}  // namespace schema
