#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "store/metric_rows.h"

namespace store {

/// A curve of a million steps is read as a few thousand points. The steps are cut into buckets of equal width. Of each
/// bucket the points with the lowest, the highest and the last value are kept, and the first point whose value is no
/// number. Every point is a value that was reported; nothing is averaged.
///
/// The SQLite store also keeps buckets of fixed widths (kWidths) beside the rows, so that a wide bucket is put together
/// from narrower ones.

/// The widths of stored buckets, in steps. Each is a multiple of the one before.
inline constexpr std::array<core::Step, 3> kWidths{32, 1024, 32'768};
/// Most points that one bucket keeps.
inline constexpr std::uint32_t kPointsABucket = 4;
/// Most points over all curves of one answer. Of a job with many series each curve gets fewer points.
inline constexpr std::uint32_t kMostThinnedPoints = 100'000;
/// Steps beyond are in no curve, as are those below 0.
inline constexpr core::Step kFarthestStep = 1'000'000'000'000'000;

/// The value of one step.
struct Spot {
  core::Step step = 0;
  std::int64_t at_ms = 0;
  double value = 0;
};

/// What is kept of a stretch of steps of one curve.
struct Bucket {
  std::int64_t values = 0;  // how many there are
  std::optional<Spot> lowest, highest, last;
  std::optional<Spot> gap;  // the first value that is no number

  /// Adds what follows: steps are added in order.
  void add(const Spot& spot);
  void add(const Bucket& later);
  /// Appends the points in the order of their steps, each step once.
  void append_to(std::vector<Spot>& points) const;
};

/// A point of a curve.
struct Point {
  core::AttemptNumber attempt = 0;
  Spot spot;
  /// The last value of its bucket. These values alone are a fair sample: a mean over all points would count extremes
  /// too often.
  bool is_last = false;
};

/// One series, or what ranks measure of themselves.
struct Curve {
  std::string name;
  std::int64_t values = 0;  // how many there are, kept or not
  std::int64_t steps = 0;   // how many steps there are since the first value
  std::vector<Point> points;
};

/// The steps of an attempt that rank 0 has told of.
struct AttemptSteps {
  core::AttemptNumber attempt = 0;
  core::Step first = 0, last = 0;
};

struct ThinRequest {
  core::JobId job = 0;
  /// Only what came after this step.
  core::AttemptNumber after_attempt = 0;
  core::Step after_step = -1;
  /// Only these steps, of every attempt.
  core::Step from = 0, to = kFarthestStep;
  /// Most points of one curve, a few more where there are many attempts.
  std::uint32_t points = 2000;
  /// Each power of two of the steps gets as many buckets: for a logarithmic axis.
  bool logarithmic = false;
};

struct Thinned {
  std::vector<AttemptSteps> attempts;  // all there are, whatever was asked for
  core::Step bucket_steps = 1;         // the widest bucket; 1: nothing was left out
  std::vector<Curve> series;           // those that have a value, in the order in which they came up
  std::vector<Curve> measures;         // "step_ms", "memory_peak_bytes", "bytes_communicated"
};

/// Steps of one attempt that are cut into buckets of one width.
struct Stretch {
  core::AttemptNumber attempt = 0;
  core::Step from = 0, end = 0;  // without `end`
  core::Step width = 1;
};

/// How the request is cut. Steps that a later attempt repeated are in stretches of their own, so that no bucket mixes
/// them with others. A width is a multiple of the largest stored width that is not wider.
std::vector<Stretch> stretches_of(std::span<const AttemptSteps> attempts, const ThinRequest& request,
                                  std::size_t curves);

// Curves by number. The steps themselves are one, whose values are the steps.
inline constexpr std::int64_t kStepsCurve = 0;
inline constexpr std::int64_t kStepTimeCurve = 1;
inline constexpr std::int64_t kPeakMemoryCurve = 2;
inline constexpr std::int64_t kBytesCurve = 3;
inline constexpr std::int64_t kFirstSeriesCurve = 8;

/// Puts buckets together. Steps come in order, and of each step or stored bucket the steps' own curve comes first.
class Thinner {
 public:
  void begin(const Stretch& stretch);
  void add(std::int64_t curve, const Spot& spot);
  /// Of steps that are all in one bucket of the stretch.
  void add(std::int64_t curve, const Bucket& bucket);
  /// `series`: names by number, in their order.
  Thinned finish(std::vector<AttemptSteps> attempts, std::span<const std::pair<std::int64_t, std::string>> series) &&;

 private:
  struct Open {
    core::Step index = -1;  // of the bucket that is being filled
    Bucket bucket;
    std::int64_t values = 0;
    std::int64_t steps_before = 0;  // its first value
    std::vector<Point> points;
  };
  Open& open(std::int64_t curve, core::Step step);
  void close(Open& open);
  Curve take(std::int64_t curve, std::string name);

  Stretch stretch_;
  core::Step widest_ = 1;
  std::int64_t steps_ = 0, steps_before_ = 0;
  std::map<std::int64_t, Open> curves_;
};

/// Adds one step with all its values to `sink`, which has add(curve, Spot). `curve_of`: a series' number by its name.
template <typename Sink, typename CurveOf>
void add_step(Sink& sink, const MetricRow& row, CurveOf curve_of) {
  const auto add = [&](std::int64_t curve, double value) { sink.add(curve, {row.step, row.at_ms, value}); };
  add(kStepsCurve, static_cast<double>(row.step));
  if (row.step_ms) add(kStepTimeCurve, *row.step_ms);
  if (row.memory_peak_bytes) add(kPeakMemoryCurve, static_cast<double>(*row.memory_peak_bytes));
  if (row.bytes_communicated) add(kBytesCurve, static_cast<double>(*row.bytes_communicated));
  for (const auto& value : row.values) add(curve_of(value.series), value.value);
}

}  // namespace store
