#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "controller/core/job.h"
#include "spec/series.h"

namespace store {

/// One number of one series at one step.
struct SeriesValue {
  std::string series;  // its name
  double value = 0;
  bool operator==(const SeriesValue&) const = default;
};

/// One optimizer step of one rank: what the rank measured of itself, and the values of its series. The key is (job,
/// attempt, rank, step). A stored value never changes. Adding the same row again changes nothing; a row with further
/// series adds these series.
struct MetricRow {
  core::JobId job = 0;
  core::AttemptNumber attempt = 0;
  core::RankNumber rank = 0;
  core::Step step = 0;
  std::optional<double> step_ms = std::nullopt;
  std::optional<std::int64_t> memory_bytes = std::nullopt;
  std::optional<std::int64_t> memory_peak_bytes = std::nullopt;
  std::optional<std::int64_t> bytes_communicated = std::nullopt;
  std::int64_t at_ms = 0;
  std::vector<SeriesValue> values = {};
  bool operator==(const MetricRow&) const = default;
};

/// nullopt: the row has no value of this series.
std::optional<double> value_of(const MetricRow& row, std::string_view series);

/// One step over all ranks. Time and memory are the maximum over the ranks, bytes communicated the sum. Each series has
/// its own rule, spec::OverRanks. The series are in the order in which they first appeared in the job.
struct StepRow {
  MetricRow row;  // rank is 0
  std::uint32_t ranks = 0;
  /// Set in the first row of an attempt whose rows of steps before this one have aged out, see MetricsKeep.
  std::optional<core::Step> aged_before = std::nullopt;
};

/// How long metrics are kept in which detail, by the controller's clock. After `rank_rows` one row a step is left, that
/// of all ranks together. After `step_rows` buckets of kWidths[0] steps are left, for ever. The newest steps of an
/// attempt that is not over, which no bucket holds yet, keep their rows.
struct MetricsKeep {
  std::chrono::milliseconds rank_rows = std::chrono::hours(24);
  std::chrono::milliseconds step_rows = std::chrono::hours(24 * 30);  // no less than rank_rows
};

/// A rank's declaration of a series.
struct DeclaredSeries {
  core::JobId job = 0;
  spec::Series series;
};

/// A series of a job with its newest value over the ranks.
struct SeriesRow {
  spec::Series series;
  core::AttemptNumber attempt = 0;
  core::Step step = 0;
  double value = 0;
};

/// The values that ranks reported for one step of one series. Holds enough for every rule, in a few numbers, so that a
/// rule may change after the values of single ranks are gone.
struct RankValues {
  std::uint32_t count = 0;  // ranks with a value
  double sum = 0, most = 0;
  std::optional<double> of_rank_0 = std::nullopt;

  void add(core::RankNumber rank, double value);
  /// Adds the values of other ranks.
  void add(const RankValues& others);
  /// nullopt: no rank's value counts.
  std::optional<double> over(spec::OverRanks rule) const;
  bool operator==(const RankValues&) const = default;
};

/// Reads a curve of a million steps as a few thousand points.
///
/// The steps are cut into buckets of equal width. A bucket keeps the points with the lowest, the highest and the last
/// value, and the first point whose value is no number. Every point is a reported value; nothing is averaged. The
/// SQLite store also stores buckets of fixed widths (kWidths), so that a wide bucket is made from narrower ones.

/// The widths of stored buckets, in steps. Each is a multiple of the one before.
inline constexpr std::array<core::Step, 3> kWidths{32, 1024, 32'768};
/// The most points of one bucket.
inline constexpr std::uint32_t kPointsABucket = 4;
/// The most points of all curves of one answer. The curves of a job with many series get fewer points each.
inline constexpr std::uint32_t kMostThinnedPoints = 100'000;
/// No curve holds a step above this one, or a step below 0.
inline constexpr core::Step kFarthestStep = 1'000'000'000'000'000;

/// The value of one step.
struct Spot {
  core::Step step = 0;
  std::int64_t at_ms = 0;
  double value = 0;
};

/// The points that a stretch of steps of one curve keeps.
struct Bucket {
  std::int64_t values = 0;  // how many were reported
  std::optional<Spot> lowest, highest, last;
  std::optional<Spot> gap;  // the first value that is no number

  /// Adds later steps. The steps must come in order.
  void add(const Spot& spot);
  void add(const Bucket& later);
  /// Appends the points in the order of their steps, each step once.
  void append_to(std::vector<Spot>& points) const;
};

/// A point of a curve.
struct Point {
  core::AttemptNumber attempt = 0;
  Spot spot;
  /// The point is the last one of its bucket. Only these points are a fair sample. A mean over all points would count
  /// the extremes too often.
  bool is_last = false;
};

/// The points of one series, or of one measure of the ranks.
struct Curve {
  std::string name;
  std::int64_t values = 0;  // how many were reported
  std::int64_t steps = 0;   // the number of steps since the first value
  std::vector<Point> points;
};

/// The steps of an attempt that rank 0 has reported.
struct AttemptSteps {
  core::AttemptNumber attempt = 0;
  core::Step first = 0, last = 0;
  /// The rows of earlier steps have aged out, and only buckets of kWidths[0] steps are left of them. A multiple of
  /// kWidths[0].
  core::Step rows_from = 0;
};

struct ThinRequest {
  core::JobId job = 0;
  /// Only the steps after this one.
  core::AttemptNumber after_attempt = 0;
  core::Step after_step = -1;
  /// Only these steps, of every attempt.
  core::Step from = 0, to = kFarthestStep;
  /// The most points of one curve. Many attempts add a few more.
  std::uint32_t points = 2000;
  /// Each power of two of the steps gets equally many buckets, for a logarithmic axis.
  bool logarithmic = false;
};

struct Thinned {
  std::vector<AttemptSteps> attempts;  // every attempt with steps, whatever the request
  core::Step bucket_steps = 1;         // the width of the widest bucket; 1: every value is here
  std::vector<Curve> series;           // series with a value, in the order in which they first appeared
  std::vector<Curve> measures;         // "step_ms", "memory_peak_bytes", "bytes_communicated"
};

/// Steps of one attempt that are cut into buckets of one width.
struct Stretch {
  core::AttemptNumber attempt = 0;
  core::Step from = 0, end = 0;  // `end` is not part of it
  core::Step width = 1;
};

/// Cuts the requested steps into stretches. Steps that a later attempt repeated get their own stretches, so that no
/// bucket mixes them with other steps. A width is a multiple of the largest stored width that is not above it. Steps
/// whose rows have aged out are in stretches of whole stored buckets, so such a stretch may begin up to
/// kWidths[0] - 1 steps before the requested ones and end as many after them.
std::vector<Stretch> stretches_of(std::span<const AttemptSteps> attempts, const ThinRequest& request,
                                  std::size_t curves);

// The numbers of curves. The values of the curve kStepsCurve are the steps themselves.
inline constexpr std::int64_t kStepsCurve = 0;
inline constexpr std::int64_t kStepTimeCurve = 1;
inline constexpr std::int64_t kPeakMemoryCurve = 2;
inline constexpr std::int64_t kBytesCurve = 3;
inline constexpr std::int64_t kFirstSeriesCurve = 8;

/// Fills buckets and makes curves of them. The steps must come in order. Each step, and each stored bucket, begins with
/// kStepsCurve.
class Thinner {
 public:
  void begin(const Stretch& stretch);
  void add(std::int64_t curve, const Spot& spot);
  /// All steps of `bucket` must lie in one bucket of the stretch.
  void add(std::int64_t curve, const Bucket& bucket);
  /// `series`: numbers and names, in the order of the answer.
  Thinned finish(std::vector<AttemptSteps> attempts, std::span<const std::pair<std::int64_t, std::string>> series) &&;

 private:
  struct Open {
    core::Step index = -1;  // of the bucket that is being filled
    Bucket bucket;
    std::int64_t values = 0;
    std::int64_t steps_before = 0;  // the number of steps before the first value
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

}  // namespace store
