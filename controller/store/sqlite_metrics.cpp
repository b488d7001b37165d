#include "store/sqlite_metrics.h"

#include <SQLiteCpp/SQLiteCpp.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace store {
namespace {

/// Adds a series, or updates its declaration. Returns null if the job has schema::kMostSeries already.
KnownSeries::Entry* declare(Connection& connection, KnownSeries::Job& job, core::JobId id,
                            const schema::Series& series) {
  const auto found = job.find(series.name);
  if (found == job.end() && job.size() >= schema::kMostSeries) return nullptr;
  std::int64_t number = 1;
  for (const auto& [name, known] : job) number = std::max(number, known.id + 1);
  if (found != job.end()) number = found->second.id;
  Query row = connection.query(
      "INSERT INTO series (job_id, id, name, unit, better, over_ranks) VALUES (?, ?, ?, ?, ?, ?) "
      "ON CONFLICT (job_id, name) DO UPDATE SET unit = excluded.unit, better = excluded.better, "
      "over_ranks = excluded.over_ranks");
  row.with(id).with(number).with(series.name).with(series.unit);
  row.with(schema::to_string(series.better)).with(schema::to_string(series.over_ranks)).run();
  auto& entry = job[series.name];
  entry.id = number;
  entry.over_ranks = series.over_ranks;
  return &entry;
}

/// Returns true if a value was new.
bool write_values(Connection& connection, KnownSeries::Job& job, const MetricRow& metric) {
  int written = 0;
  for (const auto& value : metric.values) {
    const auto found = job.find(value.series);
    auto* entry = found != job.end() ? &found->second
                                     : declare(connection, job, metric.job, schema::undeclared_series(value.series));
    if (entry == nullptr) continue;
    if (entry->over_ranks == schema::OverRanks::kRank0 && metric.rank != 0) continue;
    Query row = connection.query(
        "INSERT INTO series_values (job_id, attempt, step, series, rank, value) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT DO NOTHING");
    row.with(metric.job).with(std::int64_t{metric.attempt}).with(metric.step).with(entry->id);
    written += row.with(std::int64_t{metric.rank}).with(value.value).run_counting();
    if (std::pair(metric.attempt, metric.step) > std::pair(entry->attempt, entry->step)) {
      entry->attempt = metric.attempt;
      entry->step = metric.step;
      entry->moved = true;
    }
  }
  return written > 0;
}

/// Returns true if the row was new.
bool write_measurements(Connection& connection, const MetricRow& metric) {
  Query row = connection.query(
      "INSERT INTO rank_steps (job_id, attempt, step, rank, step_ms, memory_bytes, memory_peak_bytes, "
      "bytes_communicated, at_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING");
  row.with(metric.job).with(std::int64_t{metric.attempt}).with(metric.step).with(std::int64_t{metric.rank});
  row.with(metric.step_ms).with(metric.memory_bytes).with(metric.memory_peak_bytes);
  return row.with(metric.bytes_communicated).with(metric.at_ms).run_counting() > 0;
}

void write_newest(Connection& connection, KnownSeries::Job& job, core::JobId id) {
  for (auto& [name, entry] : job) {
    if (!std::exchange(entry.moved, false)) continue;
    Query row = connection.query("UPDATE series SET newest_attempt = ?, newest_step = ? WHERE job_id = ? AND id = ?");
    row.with(std::int64_t{entry.attempt}).with(entry.step).with(id).with(entry.id).run();
  }
}

std::optional<std::int64_t> integer_of(const Query& row, int column) {
  return row.integer_or_none(column);
}

std::optional<double> real_of(const Query& row, int column) {
  return row.is_null(column) ? std::nullopt : std::optional(row.real(column));
}

/// All series of the job by their ids, also those without a value.
std::map<std::int64_t, schema::Series> read_names(Connection& connection, core::JobId job) {
  Query row = connection.query("SELECT id, name, unit, better, over_ranks FROM series WHERE job_id = ?");
  row.with(job);
  std::map<std::int64_t, schema::Series> names;
  while (row.next()) {
    names.emplace(row.integer(0), schema::Series{row.text(1), row.text(2), schema::better_of(row.text(3)),
                                                 schema::over_ranks_of(row.text(4))});
  }
  return names;
}

/// Adds the values of its series to each step. `steps` are in order of (attempt, step).
void read_values(Connection& connection, core::JobId job, std::vector<StepRow>& steps) {
  if (steps.empty()) return;
  const auto names = read_names(connection, job);
  const auto &first = steps.front().row, &last = steps.back().row;
  Query row = connection.query(
      "SELECT attempt, step, series, rank, value FROM series_values WHERE job_id = ?1 AND (attempt, step) >= (?2, ?3) "
      "AND (attempt, step) <= (?4, ?5) ORDER BY attempt, step, series, rank");
  row.with(job).with(std::int64_t{first.attempt}).with(first.step).with(std::int64_t{last.attempt}).with(last.step);
  auto at = steps.begin();
  std::optional<OverRanks> values;
  std::int64_t series = 0;
  const auto finish = [&] {
    const auto known = names.find(series);
    const auto value = values && known != names.end() ? values->value() : std::nullopt;
    if (value) at->row.values.push_back({known->second.name, *value});
    values.reset();
  };
  while (row.next()) {
    const auto place = std::pair(static_cast<core::AttemptNumber>(row.integer(0)), row.integer(1));
    if (place != std::pair(at->row.attempt, at->row.step) || row.integer(2) != series) finish();
    while (at != steps.end() && std::pair(at->row.attempt, at->row.step) < place) ++at;
    if (at == steps.end()) break;
    if (std::pair(at->row.attempt, at->row.step) != place) continue;  // rank 0 has not reported this step yet
    series = row.integer(2);
    const auto known = names.find(series);
    if (known == names.end()) continue;
    if (!values) values.emplace(known->second.over_ranks);
    values->add(static_cast<core::RankNumber>(row.integer(3)), row.real(4));
  }
  if (at != steps.end()) finish();
}

}  // namespace

KnownSeries::Job& KnownSeries::of(Connection& connection, core::JobId job) {
  if (const auto found = jobs_.find(job); found != jobs_.end()) return found->second;
  auto& entries = jobs_[job];
  Query row = connection.query(
      "SELECT id, name, over_ranks, ifnull(newest_attempt, 0), ifnull(newest_step, -1) FROM series WHERE job_id = ?");
  row.with(job);
  while (row.next()) {
    entries[row.text(1)] = {row.integer(0), schema::over_ranks_of(row.text(2)),
                            static_cast<core::AttemptNumber>(row.integer(3)), row.integer(4), false};
  }
  return entries;
}

void write_metrics(Connection& connection, KnownSeries& known, MetricBuckets& buckets, std::span<const MetricRow> rows,
                   std::span<const DeclaredSeries> declared) {
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
  for (const auto& row : rows) {
    bool is_new = write_measurements(connection, row);
    if (!row.values.empty()) {
      is_new |= write_values(connection, known.of(connection, row.job), row);
      with_values.insert(row.job);
    }
    if (is_new) buckets.touch(connection, row.job, row.attempt, row.step);
  }
  for (const auto job : with_values) write_newest(connection, known.of(connection, job), job);
  buckets.settle(connection);
}

std::uint32_t erase_metrics(Connection& connection, core::JobId job, std::uint32_t most) {
  std::uint32_t erased = 0;
  const auto erase = [&](const char* sql) {
    if (erased >= most) return;
    Query row = connection.query(sql);
    erased += static_cast<std::uint32_t>(row.with(job).with(std::int64_t{most - erased}).run_counting());
  };
  erase(
      "DELETE FROM metric_buckets WHERE (job_id, attempt, level, bucket, curve) IN "
      "(SELECT job_id, attempt, level, bucket, curve FROM metric_buckets WHERE job_id = ? LIMIT ?)");
  erase(
      "DELETE FROM series_values WHERE (job_id, attempt, step, series, rank) IN "
      "(SELECT job_id, attempt, step, series, rank FROM series_values WHERE job_id = ? LIMIT ?)");
  erase(
      "DELETE FROM rank_steps WHERE (job_id, attempt, step, rank) IN "
      "(SELECT job_id, attempt, step, rank FROM rank_steps WHERE job_id = ? LIMIT ?)");
  erase("DELETE FROM series WHERE (job_id, id) IN (SELECT job_id, id FROM series WHERE job_id = ? LIMIT ?)");
  return erased;
}

std::vector<StepRow> read_metrics(Connection& connection, core::JobId job, core::AttemptNumber attempt,
                                  core::AttemptNumber after_attempt, core::Step after_step, std::uint32_t limit) {
  const SQLite::Transaction one_moment(connection.database());
  std::vector<StepRow> steps;
  {
    // A step is shown once rank 0 has reported it.
    Query row = connection.query(
        "SELECT attempt, step, count(*), max(step_ms), max(memory_bytes), max(memory_peak_bytes), "
        "sum(bytes_communicated), max(CASE rank WHEN 0 THEN at_ms END) "
        "FROM rank_steps WHERE job_id = ?1 AND (attempt, step) > (?2, ?3) AND (?4 = 0 OR attempt = ?4) "
        "GROUP BY attempt, step HAVING min(rank) = 0 ORDER BY attempt, step LIMIT ?5");
    row.with(job).with(std::int64_t{after_attempt}).with(after_step).with(std::int64_t{attempt});
    row.with(std::int64_t{limit});
    while (row.next()) {
      StepRow& step = steps.emplace_back();
      step.ranks = static_cast<std::uint32_t>(row.integer(2));
      step.row = {.job = job,
                  .attempt = static_cast<core::AttemptNumber>(row.integer(0)),
                  .step = row.integer(1),
                  .step_ms = real_of(row, 3),
                  .memory_bytes = integer_of(row, 4),
                  .memory_peak_bytes = integer_of(row, 5),
                  .bytes_communicated = integer_of(row, 6),
                  .at_ms = row.integer(7)};
    }
  }
  read_values(connection, job, steps);
  return steps;
}

std::optional<MetricRow> read_newest_metric(Connection& connection, core::JobId job) {
  const SQLite::Transaction one_moment(connection.database());
  MetricRow metric{.job = job};
  {
    Query row = connection.query(
        "SELECT attempt, step, step_ms, memory_bytes, memory_peak_bytes, bytes_communicated, at_ms "
        "FROM rank_steps WHERE job_id = ? AND rank = 0 ORDER BY attempt DESC, step DESC LIMIT 1");
    if (!row.with(job).next()) return std::nullopt;
    metric.attempt = static_cast<core::AttemptNumber>(row.integer(0));
    metric.step = row.integer(1);
    metric.step_ms = real_of(row, 2);
    metric.memory_bytes = integer_of(row, 3);
    metric.memory_peak_bytes = integer_of(row, 4);
    metric.bytes_communicated = integer_of(row, 5);
    metric.at_ms = row.integer(6);
  }
  const auto names = read_names(connection, job);
  Query row = connection.query(
      "SELECT series, value FROM series_values WHERE job_id = ? AND attempt = ? AND step = ? AND rank = 0 "
      "ORDER BY series");
  row.with(job).with(std::int64_t{metric.attempt}).with(metric.step);
  while (row.next()) {
    const auto known = names.find(row.integer(0));
    if (known != names.end()) metric.values.push_back({known->second.name, row.real(1)});
  }
  return metric;
}

std::vector<SeriesRow> read_series(Connection& connection, core::JobId job) {
  const SQLite::Transaction one_moment(connection.database());
  std::vector<SeriesRow> found;
  std::vector<std::int64_t> ids;
  {
    Query row = connection.query(
        "SELECT id, name, unit, better, over_ranks, newest_attempt, newest_step FROM series "
        "WHERE job_id = ? AND newest_attempt IS NOT NULL ORDER BY id");
    row.with(job);
    while (row.next()) {
      ids.push_back(row.integer(0));
      found.push_back({{row.text(1), row.text(2), schema::better_of(row.text(3)), schema::over_ranks_of(row.text(4))},
                       static_cast<core::AttemptNumber>(row.integer(5)),
                       row.integer(6),
                       0});
    }
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    OverRanks value(found[i].series.over_ranks);
    Query row = connection.query(
        "SELECT rank, value FROM series_values WHERE job_id = ? AND attempt = ? AND step = ? AND series = ?");
    row.with(job).with(std::int64_t{found[i].attempt}).with(found[i].step).with(ids[i]);
    while (row.next()) value.add(static_cast<core::RankNumber>(row.integer(0)), row.real(1));
    found[i].value = value.value().value_or(0);
  }
  return found;
}

}  // namespace store
