#include <SQLiteCpp/SQLiteCpp.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "store/sqlite_metrics.h"

namespace store {
namespace {

using Key = std::pair<core::JobId, core::AttemptNumber>;
using Rules = std::map<std::int64_t, schema::OverRanks>;  // by curve

constexpr std::int64_t curve_of_series(std::int64_t id) {
  return kFirstSeriesCurve - 1 + id;
}

Rules read_rules(Connection& connection, core::JobId job) {
  Query row = connection.query("SELECT id, over_ranks FROM series WHERE job_id = ?", job);
  Rules rules;
  while (row.next()) {
    rules.emplace(curve_of_series(row.get<std::int64_t>(0)), schema::over_ranks_of(row.get<std::string>(1)));
  }
  return rules;
}

/// Adds the steps from `from` up to `end` to the sink, in order, from the rows of the ranks. Steps without a row of
/// rank 0 are left out. `go_on(step)` is called before each step; false ends the reading.
template <typename Sink, typename GoOn>
void read_rows(Connection& connection, const Key& key, const Rules& rules, core::Step from, core::Step end, Sink& sink,
               GoOn go_on) {
  Query step = connection.query(
      "SELECT step, max(CASE rank WHEN 0 THEN at_ms END), max(step_ms), max(memory_peak_bytes), "
      "sum(bytes_communicated) FROM rank_steps WHERE job_id = ? AND attempt = ? AND step >= ? AND step < ? "
      "GROUP BY step HAVING min(rank) = 0 ORDER BY step",
      key.first, key.second, from, end);
  Query value = connection.query(
      "SELECT step, series, rank, value FROM series_values WHERE job_id = ? AND attempt = ? AND step >= ? AND step < ? "
      "ORDER BY step, series, rank",
      key.first, key.second, from, end);
  bool more = value.next();
  while (step.next()) {
    const auto number = step.get<core::Step>(0), at_ms = step.get<std::int64_t>(1);
    if (!go_on(number)) return;
    sink.add(kStepsCurve, Spot{number, at_ms, static_cast<double>(number)});
    for (const auto curve : {kStepTimeCurve, kPeakMemoryCurve, kBytesCurve}) {
      const auto column = static_cast<int>(curve) + 1;
      if (!step.is_null(column)) sink.add(curve, Spot{number, at_ms, step.get<double>(column)});
    }
    const auto is_at = [&](core::Step at) { return more && value.get<core::Step>(0) == at; };
    const auto curve_there = [&] { return curve_of_series(value.get<std::int64_t>(1)); };
    while (more && value.get<core::Step>(0) < number) more = value.next();
    while (is_at(number)) {
      const auto curve = curve_there();
      const auto rule = rules.find(curve);
      OverRanks over(rule == rules.end() ? schema::OverRanks::kMean : rule->second);
      for (; is_at(number) && curve_there() == curve; more = value.next()) {
        over.add(value.get<core::RankNumber>(2), value.get<double>(3));
      }
      if (const auto one = over.value()) sink.add(curve, Spot{number, at_ms, *one});
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
  std::vector<AttemptSteps> attempts;
  const auto end_of = [&](const char* sql, core::AttemptNumber attempt) {
    return connection.first<std::int64_t>(sql, job, attempt);
  };
  constexpr const char* kNext =
      "SELECT attempt FROM rank_steps WHERE job_id = ? AND attempt > ? ORDER BY attempt LIMIT 1";
  constexpr const char* kFirst =
      "SELECT step FROM rank_steps WHERE job_id = ? AND attempt = ? AND rank = 0 ORDER BY step LIMIT 1";
  constexpr const char* kLast =
      "SELECT step FROM rank_steps WHERE job_id = ? AND attempt = ? AND rank = 0 ORDER BY step DESC LIMIT 1";
  for (auto next = end_of(kNext, 0); next; next = end_of(kNext, static_cast<core::AttemptNumber>(*next))) {
    const auto attempt = static_cast<core::AttemptNumber>(*next);
    if (const auto first = end_of(kFirst, attempt)) attempts.push_back({attempt, *first, *end_of(kLast, attempt)});
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

}  // namespace

MetricBuckets::Progress& MetricBuckets::of(Connection& connection, const Key& key) {
  const auto [found, is_new] = attempts_.try_emplace(key);
  if (!is_new) return found->second;
  for (std::size_t level = 0; level < kWidths.size(); ++level) {
    found->second.settled[level] = read_settled(connection, key, level);
  }
  const auto newest = connection.first<core::Step>(
      "SELECT step FROM rank_steps WHERE job_id = ? AND attempt = ? AND step <= ? ORDER BY step DESC LIMIT 1",
      key.first, key.second, kFarthestStep);
  if (newest) found->second.newest = *newest;
  return found->second;
}

void MetricBuckets::touch(Connection& connection, core::JobId job, core::AttemptNumber attempt, core::Step step) {
  if (step < 0 || step > kFarthestStep) return;
  auto& progress = of(connection, {job, attempt});
  if (step < progress.settled[0]) progress.late.insert(step / kWidths[0] * kWidths[0]);
  progress.newest = std::max(progress.newest, step);
  touched_.insert({job, attempt});
}

bool MetricBuckets::settle_one(Connection& connection, const Key& key, Progress& progress) {
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
    const auto past = level == 0 ? progress.newest + 1 - kLateSteps : progress.settled[level - 1];
    const auto due = std::max<core::Step>(0, past) / width * width;
    if (due > settled) settled = write_level(connection, key, level, settled, due);
    done &= settled >= due;
  }
  progress.late.clear();
  return done;
}

void MetricBuckets::settle(Connection& connection) {
  for (const auto& key : touched_) settle_one(connection, key, attempts_.at(key));
  touched_.clear();
}

bool MetricBuckets::settle_stored(Connection& connection, core::JobId job, core::AttemptNumber attempt) {
  return settle_one(connection, {job, attempt}, of(connection, {job, attempt}));
}

void MetricBuckets::drop(Connection& connection, core::JobId job) {
  connection.run("DELETE FROM metric_buckets WHERE job_id = ?", job);
  forget(job);
}

void MetricBuckets::forget(core::JobId job) {
  std::erase_if(attempts_, [&](const auto& entry) { return entry.first.first == job; });
  std::erase_if(touched_, [&](const auto& key) { return key.first == job; });
}

void MetricBuckets::clear() {
  attempts_.clear();
  touched_.clear();
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

void settle_older(Connection& connection) {
  MetricBuckets buckets;
  const auto next = [&]() -> std::optional<Key> {
    Query row = connection.query("SELECT job_id, attempt FROM unsettled_attempts LIMIT 1");
    if (!row.next()) return std::nullopt;
    return Key{row.get<core::JobId>(0), row.get<core::AttemptNumber>(1)};
  };
  while (const auto key = next()) {
    SQLite::Transaction transaction(connection.database(), SQLite::TransactionBehavior::IMMEDIATE);
    if (buckets.settle_stored(connection, key->first, key->second)) {
      connection.run("DELETE FROM unsettled_attempts WHERE job_id = ? AND attempt = ?", key->first, key->second);
      buckets.clear();
    }
    transaction.commit();
  }
}

}  // namespace store
