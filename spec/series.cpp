#include "spec/series.h"

#include <algorithm>
#include <array>

namespace spec {
namespace {

constexpr std::array<std::string_view, 3> kBetter{"neither", "lower", "higher"};
constexpr std::array<std::string_view, 4> kOverRanks{"mean", "sum", "max", "rank0"};

constexpr std::array<std::string_view, 2> kTrained{"train", "training"};
constexpr std::array<std::string_view, 7> kHeldOut{"validation", "valid", "val", "evaluation", "eval", "test", "dev"};

constexpr std::array<std::string_view, 8> kLowIsGood{"loss", "perplexity", "ppl", "error", "mse", "mae", "rmse", "wer"};
constexpr std::array<std::string_view, 13> kHighIsGood{"accuracy", "acc",          "precision",    "recall", "f1",
                                                       "auc",      "bleu",         "rouge",        "chrf",   "iou",
                                                       "reward",   "tokens_per_s", "samples_per_s"};

/// The split at the beginning of a name, and the rest. The split is empty if the name begins with none.
struct Parts {
  std::string_view split, quantity;
};

Parts parts_of(std::string_view name) {
  const auto try_all = [&](const auto& splits) -> Parts {
    for (const auto split : splits) {
      if (name.size() > split.size() + 1 && name.starts_with(split) &&
          (name[split.size()] == '/' || name[split.size()] == '_')) {
        return {split, name.substr(split.size() + 1)};
      }
    }
    return {{}, name};
  };
  const auto held_out = try_all(kHeldOut);
  return held_out.split.empty() ? try_all(kTrained) : held_out;
}

/// True if the name has one of the words: "top5_accuracy", "rouge_l", "head/loss".
template <std::size_t Count>
bool has_word(std::string_view name, const std::array<std::string_view, Count>& words) {
  return std::ranges::any_of(words, [&](std::string_view word) {
    for (auto at = name.find(word); at != name.npos; at = name.find(word, at + 1)) {
      const auto inside = [&](std::size_t i) {
        const char c = name[i];
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      };
      const auto after = at + word.size();
      if ((at == 0 || !inside(at - 1)) && (after == name.size() || !inside(after))) return true;
    }
    return false;
  });
}

template <std::size_t Count>
std::size_t index_of(const std::array<std::string_view, Count>& words, std::string_view word) {
  const auto found = std::ranges::find(words, word);
  return found == words.end() ? 0 : static_cast<std::size_t>(found - words.begin());
}

}  // namespace

std::string_view to_string(Better better) {
  return kBetter[static_cast<std::size_t>(better)];
}
Better better_of(std::string_view word) {
  return static_cast<Better>(index_of(kBetter, word));
}
std::string_view to_string(OverRanks over_ranks) {
  return kOverRanks[static_cast<std::size_t>(over_ranks)];
}
OverRanks over_ranks_of(std::string_view word) {
  return static_cast<OverRanks>(index_of(kOverRanks, word));
}

bool is_series_name(std::string_view name) {
  if (name.empty() || name.size() > kLongestSeries || name.front() == '/' || name.back() == '/') return false;
  return std::ranges::all_of(name, [](char c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return letter || (c >= '0' && c <= '9') || std::string_view("._-/@+:%").find(c) != std::string_view::npos;
  });
}

Series undeclared_series(std::string_view name) {
  Series series{.name = std::string(name)};
  const auto quantity = quantity_of(name);
  if (has_word(quantity, kLowIsGood)) series.better = Better::kLower;
  if (has_word(quantity, kHighIsGood)) series.better = Better::kHigher;
  return series;
}

std::string_view quantity_of(std::string_view name) {
  return parts_of(name).quantity;
}

bool is_held_out(std::string_view name) {
  return std::ranges::find(kHeldOut, parts_of(name).split) != kHeldOut.end();
}

}  // namespace spec
