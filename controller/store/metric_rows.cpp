#include "controller/store/metric_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace store {
namespace {

/// Steps of one attempt. A later attempt repeated all of them or none, and all of them or none have rows.
struct Part {
  core::AttemptNumber attempt = 0;
  core::Step from = 0, end = 0;
  bool has_rows = true;
};

core::Step rounded_down(core::Step step) {
  return step / kWidths[0] * kWidths[0];
}

core::Step rounded_up(core::Step steps, core::Step unit) {
  return (steps + unit - 1) / unit * unit;
}

core::Step width_for(core::Step steps, core::Step points, bool has_rows) {
  if (!has_rows) return std::max(kWidths[0], width_for(steps, points, true));
  if (steps <= points) return 1;
  const auto buckets = std::max<core::Step>(1, points / kPointsABucket);
  const auto exact = rounded_up(steps, buckets) / buckets;
  core::Step unit = 1;
  for (const auto stored : kWidths) {
    if (stored <= exact) unit = stored;
  }
  return rounded_up(exact, unit);
}

/// Appends the part as one with rows, and one without before it, which is made of whole buckets. `is_begun`: the bucket
/// of the first step has been told before, or belongs to the part before.
void append_later_first(Part part, core::Step rows_from, bool is_begun, std::vector<Part>& parts) {
  const auto first_with_rows = std::max(part.from, rows_from);
  if (first_with_rows < part.end) parts.push_back({part.attempt, first_with_rows, part.end});
  const auto from = is_begun ? rounded_up(part.from, kWidths[0]) : rounded_down(part.from);
  const auto end = std::min(rounded_up(part.end, kWidths[0]), rows_from);
  if (from < end) parts.push_back({part.attempt, from, end, false});
}

std::vector<Part> parts_of(std::span<const AttemptSteps> attempts, const ThinRequest& request) {
  std::vector<Part> parts;
  // The loop runs from the last attempt to the first, so it knows which steps a later attempt repeated.
  core::Step repeated_from = std::numeric_limits<core::Step>::max();
  for (auto attempt = attempts.rbegin(); attempt != attempts.rend(); ++attempt) {
    const bool told = attempt->attempt < request.after_attempt;
    const bool partly = attempt->attempt == request.after_attempt;
    const auto from = std::max({core::Step{0}, attempt->first, request.from, partly ? request.after_step + 1 : 0});
    const auto end = std::min({attempt->last, request.to, kFarthestStep}) + 1;
    const auto cut = std::clamp(repeated_from, from, std::max(from, end));
    const bool is_begun = partly && from == request.after_step + 1;
    if (!told && cut < end) {
      append_later_first({attempt->attempt, cut, end}, attempt->rows_from, from < cut || is_begun, parts);
    }
    if (!told && from < cut) append_later_first({attempt->attempt, from, cut}, attempt->rows_from, is_begun, parts);
    repeated_from = std::min(repeated_from, attempt->first);
  }
  std::ranges::reverse(parts);
  return parts;
}

/// Cuts the part at powers of two.
void append_octaves(const Part& part, core::Step points, std::vector<Stretch>& stretches) {
  for (auto from = part.from; from < part.end;) {
    const auto octave = from < 2 ? core::Step{1} : static_cast<core::Step>(std::bit_floor(std::uint64_t(from)));
    // Buckets are whole: the stretch of the first steps without rows holds all octaves of the first bucket.
    const auto end = std::min(part.end, std::max(octave * 2, part.has_rows ? 0 : kWidths[0]));
    stretches.push_back({part.attempt, from, end, width_for(octave, points, part.has_rows)});
    from = end;
  }
}

}  // namespace

std::optional<double> value_of(const MetricRow& row, std::string_view series) {
  const auto found = std::ranges::find(row.values, series, &SeriesValue::series);
  return found == row.values.end() ? std::nullopt : std::optional(found->value);
}

void RankValues::add(core::RankNumber rank, double value) {
  add(RankValues{1, value, value, rank == 0 ? std::optional(value) : std::nullopt});
}

void RankValues::add(const RankValues& others) {
  if (others.count == 0) return;
  // NaN wins over every number: it tells that something is wrong.
  const bool is_more = std::isnan(others.most) || others.most > most;
  if (count == 0 || is_more) most = others.most;
  sum += others.sum;
  count += others.count;
  if (others.of_rank_0) of_rank_0 = others.of_rank_0;
}

std::optional<double> RankValues::over(spec::OverRanks rule) const {
  if (rule == spec::OverRanks::kRank0) return of_rank_0;
  if (count == 0) return std::nullopt;
  if (rule == spec::OverRanks::kMax) return most;
  return rule == spec::OverRanks::kMean ? sum / count : sum;
}

void Bucket::add(const Spot& spot) {
  ++values;
  last = spot;
  if (!std::isfinite(spot.value)) {
    if (!gap) gap = spot;
    return;
  }
  if (!lowest || spot.value < lowest->value) lowest = spot;
  if (!highest || spot.value > highest->value) highest = spot;
}

void Bucket::add(const Bucket& later) {
  values += later.values;
  if (later.last) last = later.last;
  if (!gap) gap = later.gap;
  if (later.lowest && (!lowest || later.lowest->value < lowest->value)) lowest = later.lowest;
  if (later.highest && (!highest || later.highest->value > highest->value)) highest = later.highest;
}

void Bucket::append_to(std::vector<Spot>& points) const {
  const auto begin = static_cast<std::ptrdiff_t>(points.size());
  for (const auto& spot : {lowest, highest, last, gap}) {
    if (spot) points.push_back(*spot);
  }
  const std::ranges::subrange own(points.begin() + begin, points.end());
  std::ranges::sort(own, {}, &Spot::step);
  points.erase(std::ranges::unique(own, {}, &Spot::step).begin(), points.end());
}

std::vector<Stretch> stretches_of(std::span<const AttemptSteps> attempts, const ThinRequest& request,
                                  std::size_t curves) {
  const auto parts = parts_of(attempts, request);
  const auto most = static_cast<core::Step>(kMostThinnedPoints / std::max<std::size_t>(1, curves));
  const auto points = std::min<core::Step>(request.points, most);
  core::Step steps = 0, octaves = 0;
  for (const auto& part : parts) {
    steps += part.end - part.from;
    octaves += std::bit_width(std::uint64_t(part.end)) - std::bit_width(std::uint64_t(part.from)) + 1;
  }
  std::vector<Stretch> stretches;
  for (const auto& part : parts) {
    if (request.logarithmic) {
      append_octaves(part, points / octaves, stretches);
    } else {
      stretches.push_back({part.attempt, part.from, part.end, width_for(steps, points, part.has_rows)});
    }
  }
  return stretches;
}

void Thinner::begin(const Stretch& stretch) {
  for (auto& [number, curve] : curves_) close(curve);
  stretch_ = stretch;
  widest_ = std::max(widest_, stretch.width);
}

void Thinner::close(Open& open) {
  std::vector<Spot> spots;
  open.bucket.append_to(spots);
  for (const auto& spot : spots) {
    open.points.push_back({stretch_.attempt, spot, spot.step == open.bucket.last->step});
  }
  open.bucket = {};
  open.index = -1;
}

Thinner::Open& Thinner::open(std::int64_t curve, core::Step step) {
  auto& open = curves_[curve];
  const auto index = step / stretch_.width;
  if (open.index != index) close(open);
  open.index = index;
  if (open.values == 0) open.steps_before = steps_before_;
  return open;
}

void Thinner::add(std::int64_t curve, const Spot& spot) {
  if (curve == kStepsCurve) {
    steps_before_ = steps_++;
    return;
  }
  auto& at = open(curve, spot.step);
  ++at.values;
  at.bucket.add(spot);
}

void Thinner::add(std::int64_t curve, const Bucket& bucket) {
  if (!bucket.last) return;
  if (curve == kStepsCurve) {
    steps_before_ = std::exchange(steps_, steps_ + bucket.values);
    return;
  }
  auto& at = open(curve, bucket.last->step);
  at.values += bucket.values;
  at.bucket.add(bucket);
}

Curve Thinner::take(std::int64_t curve, std::string name) {
  auto& open = curves_[curve];
  close(open);
  return {std::move(name), open.values, open.values > 0 ? steps_ - open.steps_before : 0, std::move(open.points)};
}

Thinned Thinner::finish(std::vector<AttemptSteps> attempts,
                        std::span<const std::pair<std::int64_t, std::string>> series) && {
  Thinned thinned{std::move(attempts), widest_, {}, {}};
  for (const auto& [curve, name] : series) thinned.series.push_back(take(curve, name));
  thinned.measures.push_back(take(kStepTimeCurve, "step_ms"));
  thinned.measures.push_back(take(kPeakMemoryCurve, "memory_peak_bytes"));
  thinned.measures.push_back(take(kBytesCurve, "bytes_communicated"));
  for (auto* curves : {&thinned.series, &thinned.measures}) {
    std::erase_if(*curves, [](const Curve& curve) { return curve.values == 0; });
  }
  return thinned;
}

}  // namespace store
