#include "spec/tables/classify_keys.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace spec {
namespace {

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
  conflicts.push_back({"train.class_weights",
                       "want none, balanced, or a number of at least 0 for each class, not all 0",
                       "two classes could have \"1 2.5\"",
                       {}});
}

}  // namespace

const Table& classify() {
  static const Table table{"classify", kClassifyKeys, nullptr, check_classify};
  return table;
}

std::optional<std::vector<double>> class_weight_numbers(std::string_view text) {
  std::vector<double> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    at = std::find_if(at, end, [](char c) { return c != ' '; });
    if (at == end) break;
    double number = 0;
    const auto [after, error] = std::from_chars(at, end, number);
    if (error != std::errc() || (after != end && *after != ' ')) return std::nullopt;
    if (!std::isfinite(number) || number < 0) return std::nullopt;
    numbers.push_back(number);
    at = after;
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
