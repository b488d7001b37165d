#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace schema {

/// Which values of a series are good ones.
enum class Better { kNeither, kLower, kHigher };

/// How the values that several ranks report of one step become one.
enum class OverRanks {
  kMean,
  kSum,
  kMax,
  kRank0  // rank 0's value; no other rank reports one
};

/// Most characters of a series' name.
inline constexpr std::size_t kLongestSeries = 128;
inline constexpr std::size_t kLongestUnit = 32;
/// Most series of one job. Values of further ones are not kept.
inline constexpr std::size_t kMostSeries = 256;

/// A number that a training reports by step. The name is "loss" or, with the split of the data it was measured on,
/// "validation/loss".
struct Series {
  std::string name;
  std::string unit = {};  // "nats"; empty: none, or not known
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

/// True for 1 to kLongestSeries letters, digits and any of . _ - / @ + : %, with no slash at either end.
bool is_series_name(std::string_view name);

/// What is assumed of a series that nobody has declared: a loss is good when it is low, an accuracy when it is high,
/// and of an unknown quantity nothing is assumed.
Series undeclared_series(std::string_view name);

/// What was measured, without the split of the data: "loss" for "loss", "train/loss", "validation/loss" and
/// "eval_loss". Series of one quantity belong into one plot.
std::string_view quantity_of(std::string_view name);

/// True where the name says that the data was not trained on: "validation/loss", "eval_accuracy". Such a series is
/// measured on the same data each time, so that its best value is a fair one.
bool is_held_out(std::string_view name);

}  // namespace schema
