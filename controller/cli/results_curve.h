#pragma once

#include <map>
#include <optional>
#include <string>

#include "muster/v1/job.pb.h"
#include "schema/series.h"

namespace cli {

/// One series of a job by step, as training went in the end: where an attempt resumed from an earlier step, what the
/// attempts before it had from there on is forgotten. Values that are no numbers (nan, infinities) count for nothing.
class Curve {
 public:
  struct Point {
    std::int64_t step = 0;
    double value = 0;
  };
  static constexpr int kSmoothedSteps = 20;

  explicit Curve(std::string series) : series_(std::move(series)) {}
  /// In the order of (attempt, step).
  void add(const muster::v1::Metric& metric);

  std::optional<Point> last() const;
  /// Of equal ones the earliest. Where neither is better, the lowest.
  std::optional<Point> best(schema::Better better) const;
  /// At the last step, the mean of the last kSmoothedSteps steps' values, or of as many as there are.
  std::optional<Point> smoothed() const;

 private:
  std::string series_;
  std::uint32_t attempt_ = 0;
  std::map<std::int64_t, double> values_;
};

}  // namespace cli
