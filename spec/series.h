#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace spec {

/// Which values of a series are better.
enum class Better { kNeither, kLower, kHigher };

/// How the values that several ranks report for one step become one value.
enum class OverRanks {
  kMean,
  kSum,
  kMax,
  kRank0  // rank 0's value; no other rank reports one
};

/// The most characters of a series' name, and of its unit.
inline constexpr std::size_t kLongestSeries = 128;
inline constexpr std::size_t kLongestUnit = 32;
/// The most series of one job. Values of further series are dropped.
inline constexpr std::size_t kMostSeries = 256;

/// A number that a training reports for each step. The name is "loss" or, with the split of the measured data,
/// "validation/loss".
struct Series {
  std::string name;
  std::string unit = {};  // "nats"; empty: none, or unknown
  Better better = Better::kNeither;
  OverRanks over_ranks = OverRanks::kMean;
  bool operator==(const Series&) const = default;
};

/// "neither", "lower", "higher".
std::string_view to_string(Better better);
/// kNeither for any other word.
Better better_of(std::string_view word);
/// "mean", "sum", "max", "rank0".
std::string_view to_string(OverRanks over_ranks);
/// kMean for any other word.
OverRanks over_ranks_of(std::string_view word);

/// True if the name has 1 to kLongestSeries letters, digits and any of . _ - / @ + : %, and no slash at either end.
bool is_series_name(std::string_view name);

/// The assumed declaration of a series that no one has declared. A loss is better when lower, an accuracy when higher.
/// An unknown quantity gets kNeither.
Series undeclared_series(std::string_view name);

/// The measured quantity, without the split of the data: "loss" for "loss", "train/loss", "validation/loss" and
/// "eval_loss". One plot shows the series of one quantity.
std::string_view quantity_of(std::string_view name);

/// The loss on held-out data, which most recipes report.
inline constexpr std::string_view kHeldOutLoss = "validation/loss";

/// True if the name says that the data was not trained on: "validation/loss", "eval_accuracy". Such a series is
/// measured on the same data each time, so its values can be compared.
bool is_held_out(std::string_view name);

}  // namespace spec
