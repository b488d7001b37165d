#include <SQLiteCpp/SQLiteCpp.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "controller/store/sqlite_metrics.h"

namespace store {
namespace {

using Key = std::pair<core::JobId, core::AttemptNumber>;
using Rules = std::map<std::int64_t, spec::OverRanks>;  // by curve

Rules read_rules(Connection& connection, core::JobId job) {
  Query row = connection.query("SELECT id, over_ranks FROM series WHERE job_id = ?", job);
  Rules rules;
  while (row.next()) {
    rules.emplace(curve_of_series(row.get<std::int64_t>(0)), spec::over_ranks_of(row.get<std::string>(1)));
  }
  return rules;
}

/// Adds the steps from `from` up to `end` to the sink, in order, from their rows. Steps that rank 0 has not told are
/// left out. `go_on(step)` is called before each step; false ends the reading.
template <typename Sink, typename GoOn>
void read_rows(Connection& connection, const Key& key, const Rules& rules, core::Step from, core::Step end, Sink& sink,
               GoOn go_on) {
  Query row = connection.query("SELECT step, " MUSTER_STEP_COLUMNS
                               " FROM step_rows WHERE job_id = ? AND attempt = ? AND step >= ? AND step < ? AND "
                               "is_told = 1 ORDER BY step",
                               key.first, key.second, from, end);
  while (row.next()) {
    const auto step = row.get<core::Step>(0);
    if (!go_on(step)) return;
    const auto total = read_step_total(row, 1);
    const auto add = [&](std::int64_t curve, double value) { sink.add(curve, Spot{step, total.at_ms, value}); };
    add(kStepsCurve, static_cast<double>(step));
    if (total.step_ms) add(kStepTimeCurve, *total.step_ms);
    if (total.memory_peak_bytes) add(kPeakMemoryCurve, static_cast<double>(*total.memory_peak_bytes));
    if (total.bytes_communicated) add(kBytesCurve, static_cast<double>(*total.bytes_communicated));
    for (const auto& [series, of_ranks] : total.values) {
      const auto rule = rules.find(curve_of_series(series));
      const auto value = of_ranks.over(rule == rules.end() ? spec::OverRanks::kMean : rule->second);
      if (value) add(curve_of_series(series), *value);
    }
  }
}

std::optional<Spot> spot_of(const Query& row, int column) {
  if (row.is_null(column)) return std::nullopt;
  Spot spot;
  row.get_to(column, spot.step, spot.at_ms, spot.value);
  return spot;
}

/// Adds the stored buckets of the steps from `from` up to `end`. Both must be bounds of buckets.
template <typename Sink>
void read_buckets(Connection& connection, const Key& key, std::size_t level, core::Step from, core::Step end,
                  Sink& sink) {
  Query row = connection.query(
      "SELECT curve, \"values\", low_step, low_at_ms, low, high_step, high_at_ms, high, last_step, last_at_ms, last, "
      "gap_step, gap_at_ms FROM metric_buckets WHERE job_id = ?1 AND attempt = ?2 AND level = ?5 AND bucket >= ?3 AND "
      "bucket < ?4 ORDER BY bucket, curve",
      key.first, key.second, from / kWidths[level], end / kWidths[level], level);
  while (row.next()) {
    const auto curve = row.get<std::int64_t>(0);
    Bucket bucket{row.get<std::int64_t>(1), spot_of(row, 2), spot_of(row, 5), spot_of(row, 8), std::nullopt};
    if (!row.is_null(11)) {
      bucket.gap = {row.get<core::Step>(11), row.get<std::int64_t>(12), std::numeric_limits<double>::quiet_NaN()};
    }
    sink.add(curve, bucket);
  }
}

/// Buckets of this level hold all steps before the result.
core::Step read_settled(Connection& connection, const Key& key, std::size_t level) {
  const auto last = connection.first<core::Step>(
      "SELECT bucket FROM metric_buckets WHERE job_id = ? AND attempt = ? AND level = ? ORDER BY bucket DESC "
      "LIMIT 1",
      key.first, key.second, level);
  return (last.value_or(-1) + 1) * kWidths[level];
}

/// Writes buckets of one level.
class BucketWriter {
 public:
  BucketWriter(Connection& connection, const Key& key, std::size_t level)
      : connection_(connection), key_(key), level_(level) {}

  template <typename Value>  // a Spot, or a Bucket of the level below
  void add(std::int64_t curve, const Value& value) {
    const auto bucket = step_of(value) / kWidths[level_];
    if (bucket != bucket_) write();
    bucket_ = bucket;
    curves_[curve].add(value);
  }
  void write() {
    for (const auto& [curve, bucket] : curves_) write(curve, bucket);
    curves_.clear();
  }

 private:
  static core::Step step_of(const Spot& spot) { return spot.step; }
  static core::Step step_of(const Bucket& bucket) { return bucket.last->step; }

  void write(std::int64_t curve, const Bucket& bucket) {
    Query row = connection_.query(
        "INSERT OR REPLACE INTO metric_buckets VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", key_.first,
        key_.second, level_, bucket_, curve, bucket.values);
    for (const auto& spot : {bucket.lowest, bucket.highest, bucket.last}) {
      bind_place(row, spot);
      row.bind(spot ? std::optional(spot->value) : std::nullopt);
    }
    bind_place(row, bucket.gap);
    row.run();
  }
  static void bind_place(Query& row, const std::optional<Spot>& spot) {
    row.bind(spot ? std::optional(spot->step) : std::nullopt);
    row.bind(spot ? std::optional(spot->at_ms) : std::nullopt);
  }

  Connection& connection_;
  const Key key_;
  const std::size_t level_;
  core::Step bucket_ = -1;
  std::map<std::int64_t, Bucket> curves_;
};

/// Writes the buckets of this level from `from` up to `end`. Returns the end of the written ones: after kMostSteps
/// steps the rest is left.
core::Step write_level(Connection& connection, const Key& key, std::size_t level, core::Step from, core::Step end) {
  BucketWriter writer(connection, key, level);
  if (level > 0) {
    read_buckets(connection, key, level - 1, from, end, writer);
  } else {
    int steps = 0;
    core::Step bucket = -1;
    read_rows(connection, key, read_rules(connection, key.first), from, end, writer, [&](core::Step step) {
      const auto first = step / kWidths[0] * kWidths[0];
      const bool enough = steps >= MetricBuckets::kMostSteps && first != bucket;
      if (enough) end = first;
      bucket = first;
      ++steps;
      return !enough;
    });
  }
  writer.write();
  return end;
}

std::vector<AttemptSteps> read_attempts(Connection& connection, core::JobId job) {
  struct Known {
    core::AttemptNumber attempt;
    std::optional<core::Step> rows_from;
  };
  const auto known =
      connection.query("SELECT attempt, step_rows_from FROM metric_attempts WHERE job_id = ? ORDER BY attempt", job)
          .all([](const Query& row) {
            return Known{row.get<core::AttemptNumber>(0), row.get<std::optional<core::Step>>(1)};
          });
  std::vector<AttemptSteps> attempts;
  for (const auto& [attempt, rows_from] : known) {
    const auto first = connection.first<core::Step>(
        "SELECT step FROM step_rows WHERE job_id = ? AND attempt = ? AND is_told = 1 ORDER BY step LIMIT 1", job,
        attempt);
    const auto last = connection.first<core::Step>(
        "SELECT step FROM step_rows WHERE job_id = ? AND attempt = ? AND is_told = 1 ORDER BY step DESC LIMIT 1", job,
        attempt);
    if (!rows_from) {
      if (first) attempts.push_back({attempt, *first, *last});
      continue;
    }
    // The oldest steps are in buckets alone, the newest have rows.
    const auto aged_first = connection.first<core::Step>(
        "SELECT low_step FROM metric_buckets WHERE job_id = ? AND attempt = ? AND level = 0 AND curve = 0 ORDER BY "
        "bucket LIMIT 1",
        job, attempt);
    const auto aged_last = connection.first<core::Step>(
        "SELECT last_step FROM metric_buckets WHERE job_id = ? AND attempt = ? AND level = 0 AND curve = 0 ORDER BY "
        "bucket DESC LIMIT 1",
        job, attempt);
    if (!first && !aged_first) continue;
    constexpr auto kAny = std::numeric_limits<core::Step>::max();
    attempts.push_back({attempt, std::min(first.value_or(kAny), aged_first.value_or(kAny)),
                        std::max(last.value_or(-1), aged_last.value_or(-1)), *rows_from});
  }
  return attempts;
}

/// Adds the steps of one attempt from `from` up to `end`. The middle comes from the widest stored buckets of the first
/// `levels` levels that fit, the ends come from narrower buckets and from rows.
void read_steps(Connection& connection, const Key& key, const Rules& rules, core::Step from, core::Step end,
                std::size_t levels, Thinner& thinner) {
  if (from >= end) return;
  if (levels == 0) {
    return read_rows(connection, key, rules, from, end, thinner, [](core::Step) { return true; });
  }
  const auto read_narrower = [&](core::Step first, core::Step last) {
    read_steps(connection, key, rules, first, last, levels - 1, thinner);
  };
  const auto width = kWidths[levels - 1];
  const auto first = (from + width - 1) / width * width;
  const auto last = std::min(end / width * width, read_settled(connection, key, levels - 1));
  if (first >= last) return read_narrower(from, end);
  read_narrower(from, first);
  read_buckets(connection, key, levels - 1, first, last, thinner);
  read_narrower(last, end);
}

/// True if the step has no rank whose row has aged out, or this is rank 0's first word of it.
bool may_be_added(Connection& connection, const MetricRow& row, const StepTotal& pending) {
  Query step = connection.query(
      "SELECT is_told, ranks, (SELECT count(*) FROM rank_steps WHERE job_id = ?1 AND attempt = ?2 AND step = ?3) "
      "FROM step_rows WHERE job_id = ?1 AND attempt = ?2 AND step = ?3",
      row.job, row.attempt, row.step);
  if (!step.next()) return true;
  const bool are_all_there = step.get<std::int64_t>(2) >= step.get<std::int64_t>(1) + pending.ranks;
  return are_all_there || (!step.get<bool>(0) && !pending.is_told && row.rank == 0);
}

}  // namespace

MetricBuckets::Progress& MetricBuckets::of(Connection& connection, core::JobId job, core::AttemptNumber attempt) {
  const auto [found, is_new] = attempts_.try_emplace({job, attempt});
  auto& progress = found->second;
  if (!is_new) return progress;
  for (std::size_t level = 0; level < kWidths.size(); ++level) {
    progress.settled[level] = read_settled(connection, found->first, level);
  }
  const auto newest = connection.first<core::Step>(
      "SELECT step FROM step_rows WHERE job_id = ? AND attempt = ? AND step <= ? ORDER BY step DESC LIMIT 1", job,
      attempt, kFarthestStep);
  if (newest) progress.newest = *newest;
  {
    Query row = connection.query(
        "SELECT ifnull(rank_rows_from, ?3), ifnull(step_rows_from, ?3) FROM metric_attempts WHERE job_id = ?1 AND "
        "attempt = ?2",
        job, attempt, kNothingAged);
    if (row.next()) row.get_to(0, progress.rank_rows_from, progress.step_rows_from);
  }
  const auto hour = connection.first<std::int64_t>(
      "SELECT hour FROM metric_hours WHERE job_id = ? AND attempt = ? ORDER BY hour DESC LIMIT 1", job, attempt);
  if (hour) progress.hour = *hour;
  return progress;
}

bool MetricBuckets::takes(Connection& connection, const MetricRow& row, const StepTotal& pending) {
  auto& progress = of(connection, row.job, row.attempt);
  const bool has_step_row = row.step >= progress.step_rows_from;
  if (has_step_row && (row.step >= progress.rank_rows_from || may_be_added(connection, row, pending))) return true;
  ++progress.left_out;
  leaving_out_.insert({row.job, row.attempt});
  if (!std::exchange(progress.has_left_out, true)) {
    words_.push_back("metrics of job " + std::to_string(row.job) + ", attempt " + std::to_string(row.attempt) +
                     ", rank " + std::to_string(row.rank) + ", step " + std::to_string(row.step) +
                     " came after the rows of their steps had aged out: they are left out");
  }
  return false;
}

void MetricBuckets::write_left_out(Connection& connection) {
  for (const auto& [job, attempt] : leaving_out_) {
    connection.run(
        "INSERT INTO metric_attempts (job_id, attempt, left_out) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET left_out = "
        "left_out + excluded.left_out",
        job, attempt, std::exchange(attempts_.at({job, attempt}).left_out, 0));
  }
  leaving_out_.clear();
}

void MetricBuckets::touch(Connection& connection, const StepKey& key, std::int64_t hour) {
  auto& progress = of(connection, key.job, key.attempt);
  note_hour(connection, key.job, key.attempt, hour);
  if (key.step < 0 || key.step > kFarthestStep) return;
  if (key.step < progress.settled[0]) progress.late.insert(key.step / kWidths[0] * kWidths[0]);
  progress.newest = std::max(progress.newest, key.step);
  touched_.insert({key.job, key.attempt});
}

void MetricBuckets::note_hour(Connection& connection, core::JobId job, core::AttemptNumber attempt, std::int64_t hour) {
  auto& progress = of(connection, job, attempt);
  if (hour <= progress.hour) return;
  connection.run("INSERT INTO metric_attempts (job_id, attempt) VALUES (?, ?) ON CONFLICT DO NOTHING", job, attempt);
  connection.run(
      "INSERT INTO metric_hours (job_id, attempt, hour, after_step) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", job,
      attempt, hour, progress.newest);
  progress.hour = hour;
}

void MetricBuckets::put_off(Connection& connection, core::JobId job, core::AttemptNumber attempt, std::int64_t hour) {
  auto& progress = of(connection, job, attempt);
  connection.run("UPDATE metric_hours SET hour = ?, is_summed = 0 WHERE job_id = ? AND attempt = ? AND hour = ?", hour,
                 job, attempt, progress.hour);
  progress.hour = hour;
}

bool MetricBuckets::settle_one(Connection& connection, const Key& key, Progress& progress, bool is_over) {
  bool done = true;
  for (std::size_t level = 0; level < kWidths.size(); ++level) {
    const auto width = kWidths[level];
    auto& settled = progress.settled[level];
    std::set<core::Step> late;
    for (const auto step : progress.late) {
      if (step < settled) late.insert(step / width * width);
    }
    for (const auto from : late) write_level(connection, key, level, from, from + width);
    // A bucket is made from narrower buckets, so these must be written first.
    const auto past = level > 0 ? progress.settled[level - 1]
                      : is_over ? progress.newest + width
                                : progress.newest + 1 - kLateSteps;
    const auto due = std::max<core::Step>(0, past) / width * width;
    if (due > settled) settled = write_level(connection, key, level, settled, due);
    done &= settled >= due;
  }
  progress.late.clear();
  return done;
}

void MetricBuckets::settle(Connection& connection) {
  for (const auto& key : touched_) settle_one(connection, key, attempts_.at(key), false);
  touched_.clear();
}

bool MetricBuckets::settle_stored(Connection& connection, core::JobId job, core::AttemptNumber attempt, bool is_over) {
  return settle_one(connection, {job, attempt}, of(connection, job, attempt), is_over);
}

void MetricBuckets::drop(Connection& connection, core::JobId job) {
  connection.run(
      "DELETE FROM metric_buckets WHERE job_id = ?1 AND (bucket + 1) * CASE level WHEN 0 THEN ?2 WHEN 1 THEN ?3 ELSE "
      "?4 "
      "END > ifnull((SELECT step_rows_from FROM metric_attempts a WHERE a.job_id = ?1 AND a.attempt = "
      "metric_buckets.attempt), 0)",
      job, kWidths[0], kWidths[1], kWidths[2]);
  forget(job);
}

void MetricBuckets::forget(core::JobId job) {
  std::erase_if(attempts_, [&](const auto& entry) { return entry.first.first == job; });
  std::erase_if(touched_, [&](const auto& key) { return key.first == job; });
  std::erase_if(leaving_out_, [&](const auto& key) { return key.first == job; });
}

void MetricBuckets::clear() {
  attempts_.clear();
  touched_.clear();
  leaving_out_.clear();
}

Thinned read_thinned(Connection& connection, const ThinRequest& request) {
  const SQLite::Transaction one_moment(connection.database());
  const auto names = connection.query("SELECT id, name FROM series WHERE job_id = ? ORDER BY id", request.job)
                         .all([](const Query& row) {
                           return std::pair(curve_of_series(row.get<std::int64_t>(0)), row.get<std::string>(1));
                         });
  const auto rules = read_rules(connection, request.job);
  auto attempts = read_attempts(connection, request.job);
  Thinner thinner;
  for (const auto& stretch : stretches_of(attempts, request, names.size())) {
    thinner.begin(stretch);
    const auto levels = std::ranges::upper_bound(kWidths, stretch.width) - kWidths.begin();
    read_steps(connection, {request.job, stretch.attempt}, rules, stretch.from, stretch.end,
               static_cast<std::size_t>(levels), thinner);
  }
  return std::move(thinner).finish(std::move(attempts), names);
}

}  // namespace store
