#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "muster/v1/job.pb.h"
#include "spec/series.h"

namespace cli {

/// The name of a series as words in capitals: "VALIDATION LOSS" for "validation/loss".
std::string capitals_of(const std::string& series);

/// ", validation loss 2.9": the newest values of the first three validation series.
std::string held_out_text(const muster::v1::Job& job);

/// "validation/loss 2.9 at step 40, learning_rate 0.0003, grad_norm 1.2": the newest values of at most `most` series
/// that `muster show` prints nowhere else, those of held-out data first.
std::string other_series_text(const muster::v1::Job& job, std::size_t most);

/// The message for an unknown series: `want one of loss, validation/loss, did you mean validation/loss`.
std::string no_such_series(const std::string& wanted, const std::vector<std::string>& known);

/// The values of one series of a job, by step. If an attempt resumed from an earlier step, the values that earlier
/// attempts had after that step are dropped. Values that are not finite numbers are ignored.
class Curve {
 public:
  struct Point {
    std::int64_t step = 0;
    double value = 0;
  };
  static constexpr int kSmoothedSteps = 20;

  explicit Curve(std::string series) : series_(std::move(series)) {}
  /// Call it in the order of (attempt, step).
  void add(const muster::v1::Metric& metric);

  std::optional<Point> last() const;
  /// The best point; of equal ones the earliest. With kNeither, the lowest.
  std::optional<Point> best(spec::Better better) const;
  /// The mean of the last kSmoothedSteps values, or of all if there are fewer, at the last step.
  std::optional<Point> smoothed() const;

 private:
  std::string series_;
  std::uint32_t attempt_ = 0;
  std::map<std::int64_t, double> values_;
};

}  // namespace cli
