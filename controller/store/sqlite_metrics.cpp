#include "controller/store/sqlite_metrics.h"

#include <SQLiteCpp/SQLiteCpp.h>

#include <algorithm>
#include <optional>

namespace store {
namespace {

/// Adds a series, or updates its declaration. Returns null if the job has spec::kMostSeries already.
KnownSeries::Entry* declare(Connection& connection, KnownSeries::Job& job, core::JobId id, const spec::Series& series) {
  const auto found = job.find(series.name);
  if (found == job.end() && job.size() >= spec::kMostSeries) return nullptr;
  std::int64_t number = 1;
  for (const auto& [name, known] : job) number = std::max(number, known.id + 1);
  if (found != job.end()) number = found->second.id;
  connection.run(
      "INSERT INTO series (job_id, id, name, unit, better, over_ranks) VALUES (?, ?, ?, ?, ?, ?) "
      "ON CONFLICT (job_id, name) DO UPDATE SET unit = excluded.unit, better = excluded.better, "
      "over_ranks = excluded.over_ranks",
      id, number, series.name, series.unit, series.better, series.over_ranks);
  auto& entry = job[series.name];
  entry.id = number;
  entry.over_ranks = series.over_ranks;
  return &entry;
}

/// Adds the values that are new to `total`.
void write_values(Connection& connection, KnownSeries::Job& job, const MetricRow& metric, StepTotal& total) {
  for (const auto& value : metric.values) {
    const auto found = job.find(value.series);
    auto* entry = found != job.end() ? &found->second
                                     : declare(connection, job, metric.job, spec::undeclared_series(value.series));
    if (entry == nullptr) continue;
    if (entry->over_ranks == spec::OverRanks::kRank0 && metric.rank != 0) continue;
    const bool is_new = connection.run(
                            "INSERT INTO series_values (job_id, attempt, step, series, rank, value) "
                            "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                            metric.job, metric.attempt, metric.step, entry->id, metric.rank, value.value) > 0;
    if (is_new) total.values[entry->id].add(metric.rank, value.value);
    if (std::pair(metric.attempt, metric.step) > std::pair(entry->attempt, entry->step)) {
      entry->attempt = metric.attempt;
      entry->step = metric.step;
      entry->moved = true;
    }
  }
}

/// Returns true if the row was new.
bool write_measurements(Connection& connection, const MetricRow& metric) {
  return connection.run(
             "INSERT INTO rank_steps (job_id, attempt, step, rank, step_ms, memory_bytes, memory_peak_bytes, "
             "bytes_communicated, at_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
             metric.job, metric.attempt, metric.step, metric.rank, metric.step_ms, metric.memory_bytes,
             metric.memory_peak_bytes, metric.bytes_communicated, metric.at_ms) > 0;
}

void write_newest(Connection& connection, KnownSeries::Job& job, core::JobId id) {
  for (auto& [name, entry] : job) {
    if (!std::exchange(entry.moved, false)) continue;
    connection.run("UPDATE series SET newest_attempt = ?, newest_step = ? WHERE job_id = ? AND id = ?", entry.attempt,
                   entry.step, id, entry.id);
  }
}

/// Reads the columns name, unit, better, over_ranks from `column` on.
spec::Series read_declaration(const Query& row, int column) {
  std::string name, unit, better, over_ranks;
  row.get_to(column, name, unit, better, over_ranks);
  return {name, unit, spec::better_of(better), spec::over_ranks_of(over_ranks)};
}

/// All series of the job by their ids, also those without a value.
std::map<std::int64_t, spec::Series> read_names(Connection& connection, core::JobId job) {
  Query row = connection.query("SELECT id, name, unit, better, over_ranks FROM series WHERE job_id = ?", job);
  std::map<std::int64_t, spec::Series> names;
  while (row.next()) names.emplace(row.get<std::int64_t>(0), read_declaration(row, 1));
  return names;
}

/// The values of the series over the ranks, in the order of the series.
std::vector<SeriesValue> values_of(const StepTotal& total, const std::map<std::int64_t, spec::Series>& names) {
  std::vector<SeriesValue> values;
  for (const auto& [id, of_ranks] : total.values) {
    const auto known = names.find(id);
    const auto value = known == names.end() ? std::nullopt : of_ranks.over(known->second.over_ranks);
    if (value) values.push_back({known->second.name, *value});
  }
  return values;
}

MetricRow step_row_of(const StepKey& key, const StepTotal& total, std::vector<SeriesValue> values) {
  return {.job = key.job,
          .attempt = key.attempt,
          .step = key.step,
          .step_ms = total.step_ms,
          .memory_bytes = total.memory_bytes,
          .memory_peak_bytes = total.memory_peak_bytes,
          .bytes_communicated = total.bytes_communicated,
          .at_ms = total.at_ms,
          .values = std::move(values)};
}

/// The steps of this attempt before the result have aged out; nullopt: none has.
std::optional<core::Step> aged_before(Connection& connection, core::JobId job, core::AttemptNumber attempt) {
  return connection.first<core::Step>(
      "SELECT step_rows_from FROM metric_attempts WHERE job_id = ? AND attempt = ? AND step_rows_from IS NOT NULL", job,
      attempt);
}

/// The value over the ranks of the newest step of a series. If that step has aged out, its bucket knows the value.
std::optional<double> read_newest_value(Connection& connection, const StepKey& key, std::int64_t series,
                                        spec::OverRanks rule) {
  {
    Query row =
        connection.query("SELECT " MUSTER_STEP_COLUMNS " FROM step_rows WHERE job_id = ? AND attempt = ? AND step = ?",
                         key.job, key.attempt, key.step);
    if (row.next()) {
      const auto total = read_step_total(row, 0);
      const auto found = total.values.find(series);
      return found == total.values.end() ? std::nullopt : found->second.over(rule);
    }
  }
  return connection.first<double>(
      "SELECT last FROM metric_buckets WHERE job_id = ? AND attempt = ? AND level = 0 AND bucket = ? AND curve = ?",
      key.job, key.attempt, key.step / kWidths[0], curve_of_series(series));
}

/// The newest step of the last attempt after `attempt` of which only buckets are left; nullopt: there is none.
std::optional<MetricRow> read_newest_bucket(Connection& connection, core::JobId job, core::AttemptNumber attempt,
                                            const std::map<std::int64_t, spec::Series>& names) {
  const auto later = connection.first<core::AttemptNumber>(
      "SELECT attempt FROM metric_attempts a WHERE job_id = ? AND attempt > ? "
      "AND EXISTS (SELECT 1 FROM metric_buckets b WHERE b.job_id = a.job_id AND b.attempt = a.attempt "
      "AND b.level = 0 AND b.curve = 0) ORDER BY attempt DESC LIMIT 1",
      job, attempt);
  if (!later) return std::nullopt;
  MetricRow metric{.job = job, .attempt = *later};
  Query row = connection.query(
      "SELECT curve, last_step, last_at_ms, last FROM metric_buckets WHERE job_id = ?1 AND attempt = ?2 AND level = 0 "
      "AND bucket = (SELECT max(bucket) FROM metric_buckets WHERE job_id = ?1 AND attempt = ?2 AND level = 0) ORDER BY "
      "curve",
      job, *later);
  while (row.next()) {
    const auto curve = row.get<std::int64_t>(0);
    const auto step = row.get<core::Step>(1);
    if (curve == kStepsCurve) row.get_to(1, metric.step, metric.at_ms);
    if (step != metric.step || row.is_null(3)) continue;
    const auto value = row.get<double>(3);
    if (curve == kStepTimeCurve) metric.step_ms = value;
    if (curve == kPeakMemoryCurve) metric.memory_peak_bytes = static_cast<std::int64_t>(value);
    if (curve == kBytesCurve) metric.bytes_communicated = static_cast<std::int64_t>(value);
    const auto known = names.find(curve - curve_of_series(0));
    if (known != names.end()) metric.values.push_back({known->second.name, value});
  }
  return metric;
}

/// Rank 0's own row of its newest step. nullopt: it has aged out, or there is none.
std::optional<MetricRow> read_row_of_rank_0(Connection& connection, const StepKey& key,
                                            const std::map<std::int64_t, spec::Series>& names) {
  MetricRow metric{.job = key.job, .attempt = key.attempt, .step = key.step};
  {
    Query row = connection.query(
        "SELECT step_ms, memory_bytes, memory_peak_bytes, bytes_communicated, at_ms FROM rank_steps "
        "WHERE job_id = ? AND attempt = ? AND step = ? AND rank = 0",
        key.job, key.attempt, key.step);
    if (!row.next()) return std::nullopt;
    row.get_to(0, metric.step_ms, metric.memory_bytes, metric.memory_peak_bytes, metric.bytes_communicated,
               metric.at_ms);
  }
  Query row = connection.query(
      "SELECT series, value FROM series_values WHERE job_id = ? AND attempt = ? AND step = ? AND rank = 0 "
      "ORDER BY series",
      key.job, key.attempt, key.step);
  while (row.next()) {
    const auto known = names.find(row.get<std::int64_t>(0));
    if (known != names.end()) metric.values.push_back({known->second.name, row.get<double>(1)});
  }
  return metric;
}

}  // namespace

KnownSeries::Job& KnownSeries::of(Connection& connection, core::JobId job) {
  if (const auto found = jobs_.find(job); found != jobs_.end()) return found->second;
  auto& entries = jobs_[job];
  Query row = connection.query(
      "SELECT name, over_ranks, id, ifnull(newest_attempt, 0), ifnull(newest_step, -1) FROM series WHERE job_id = ?",
      job);
  while (row.next()) {
    auto& entry = entries[row.get<std::string>(0)];
    entry.over_ranks = spec::over_ranks_of(row.get<std::string>(1));
    row.get_to(2, entry.id, entry.attempt, entry.step);
  }
  return entries;
}

void write_metrics(Connection& connection, KnownSeries& known, MetricBuckets& buckets, std::span<const MetricRow> rows,
                   std::span<const DeclaredSeries> declared, std::int64_t hour) {
  known.trim();
  buckets.trim();
  for (const auto& one : declared) {
    auto& job = known.of(connection, one.job);
    const auto found = job.find(one.series.name);
    const bool other_values = found != job.end() && found->second.over_ranks != one.series.over_ranks;
    declare(connection, job, one.job, one.series);
    if (other_values) buckets.drop(connection, one.job);
  }
  std::set<core::JobId> with_values;
  std::map<StepKey, StepTotal> totals;
  for (const auto& row : rows) {
    auto& total = totals[{row.job, row.attempt, row.step}];
    if (!buckets.takes(connection, row, total)) continue;
    if (write_measurements(connection, row)) total.add(row);
    if (row.values.empty()) continue;
    write_values(connection, known.of(connection, row.job), row, total);
    with_values.insert(row.job);
  }
  for (const auto& [key, total] : totals) {
    if (total.empty()) continue;
    add_to_step(connection, key, total);
    buckets.touch(connection, key, hour);
  }
  buckets.write_left_out(connection);
  for (const auto job : with_values) write_newest(connection, known.of(connection, job), job);
  buckets.settle(connection);
}

std::uint32_t erase_metrics(Connection& connection, core::JobId job, std::uint32_t most) {
  auto erased = erase_metrics_after(connection, job, 0, most);
  if (erased < most) {
    erased += static_cast<std::uint32_t>(connection.run(
        "DELETE FROM series WHERE (job_id, id) IN (SELECT job_id, id FROM series WHERE job_id = ? LIMIT ?)", job,
        most - erased));
  }
  return erased;
}

std::uint32_t erase_metrics_after(Connection& connection, core::JobId job, core::AttemptNumber attempt,
                                  std::uint32_t most) {
  std::uint32_t erased = 0;
  const auto erase = [&](const char* sql) {
    if (erased >= most) return;
    erased += static_cast<std::uint32_t>(connection.run(sql, job, attempt, most - erased));
  };
  erase(
      "DELETE FROM metric_buckets WHERE (job_id, attempt, level, bucket, curve) IN "
      "(SELECT job_id, attempt, level, bucket, curve FROM metric_buckets WHERE job_id = ? AND attempt > ? LIMIT ?)");
  erase(
      "DELETE FROM series_values WHERE (job_id, attempt, step, series, rank) IN "
      "(SELECT job_id, attempt, step, series, rank FROM series_values WHERE job_id = ? AND attempt > ? LIMIT ?)");
  erase(
      "DELETE FROM rank_steps WHERE (job_id, attempt, step, rank) IN "
      "(SELECT job_id, attempt, step, rank FROM rank_steps WHERE job_id = ? AND attempt > ? LIMIT ?)");
  erase(
      "DELETE FROM step_rows WHERE (job_id, attempt, step) IN "
      "(SELECT job_id, attempt, step FROM step_rows WHERE job_id = ? AND attempt > ? LIMIT ?)");
  erase(
      "DELETE FROM metric_hours WHERE (job_id, attempt, hour) IN "
      "(SELECT job_id, attempt, hour FROM metric_hours WHERE job_id = ? AND attempt > ? LIMIT ?)");
  erase(
      "DELETE FROM metric_attempts WHERE (job_id, attempt) IN "
      "(SELECT job_id, attempt FROM metric_attempts WHERE job_id = ? AND attempt > ? LIMIT ?)");
  return erased;
}

std::vector<StepRow> read_metrics(Connection& connection, core::JobId job, core::AttemptNumber attempt,
                                  core::AttemptNumber after_attempt, core::Step after_step, std::uint32_t limit) {
  const SQLite::Transaction one_moment(connection.database());
  const auto names = read_names(connection, job);
  // A step is shown once rank 0 has reported it.
  auto steps =
      connection
          .query("SELECT attempt, step, " MUSTER_STEP_COLUMNS
                 " FROM step_rows WHERE job_id = ?1 AND (attempt, step) > (?2, ?3) AND (?4 = 0 OR attempt = ?4)"
                 " AND is_told = 1 ORDER BY attempt, step LIMIT ?5",
                 job, after_attempt, after_step, attempt, limit)
          .all([&](const Query& found) {
            const StepKey key{job, found.get<core::AttemptNumber>(0), found.get<core::Step>(1)};
            const auto total = read_step_total(found, 2);
            return StepRow{step_row_of(key, total, values_of(total, names)), total.ranks};
          });
  core::AttemptNumber told = 0;
  for (auto& [row, ranks, aged] : steps) {
    if (std::exchange(told, row.attempt) == row.attempt) continue;
    const auto before = aged_before(connection, job, row.attempt);
    if (before && (row.attempt != after_attempt || after_step + 1 < *before)) aged = before;
  }
  return steps;
}

std::optional<MetricRow> read_newest_metric(Connection& connection, core::JobId job) {
  const SQLite::Transaction one_moment(connection.database());
  const auto names = read_names(connection, job);
  StepKey key{.job = job};
  StepTotal total;
  {
    Query row = connection.query("SELECT attempt, step, " MUSTER_STEP_COLUMNS
                                 " FROM step_rows WHERE job_id = ? AND is_told = 1 ORDER BY attempt DESC, step DESC "
                                 "LIMIT 1",
                                 job);
    if (row.next()) {
      row.get_to(0, key.attempt, key.step);
      total = read_step_total(row, 2);
    }
  }
  // Attempts count from 1. Of one that is over for weeks only buckets are left, and rows are then of an earlier one.
  auto aged = read_newest_bucket(connection, job, key.attempt, names);
  if (aged || key.attempt == 0) return aged;
  if (auto own = read_row_of_rank_0(connection, key, names)) return own;
  return step_row_of(key, total, values_of(total, names));
}

std::int64_t read_left_out(Connection& connection, core::JobId job) {
  return connection.first<std::int64_t>("SELECT ifnull(sum(left_out), 0) FROM metric_attempts WHERE job_id = ?", job)
      .value_or(0);
}

std::vector<SeriesRow> read_series(Connection& connection, core::JobId job) {
  const SQLite::Transaction one_moment(connection.database());
  std::vector<SeriesRow> found;
  std::vector<std::int64_t> ids;
  {
    Query row = connection.query(
        "SELECT id, name, unit, better, over_ranks, newest_attempt, newest_step FROM series "
        "WHERE job_id = ? AND newest_attempt IS NOT NULL ORDER BY id",
        job);
    while (row.next()) {
      auto& series = found.emplace_back(SeriesRow{.series = read_declaration(row, 1)});
      row.get_to(0, ids.emplace_back());
      row.get_to(5, series.attempt, series.step);
    }
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    found[i].value =
        read_newest_value(connection, {job, found[i].attempt, found[i].step}, ids[i], found[i].series.over_ranks)
            .value_or(0);
  }
  return found;
}

}  // namespace store
