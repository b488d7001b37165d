#pragma once

#include <map>
#include <optional>
#include <string>

#include "muster/v1/job.pb.h"
#include "schema/series.h"

namespace cli {

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
  std::optional<Point> best(schema::Better better) const;
  /// The mean of the last kSmoothedSteps values, or of all if there are fewer, at the last step.
  std::optional<Point> smoothed() const;

 private:
  std::string series_;
  std::uint32_t attempt_ = 0;
  std::map<std::int64_t, double> values_;
};

}  // namespace cli
