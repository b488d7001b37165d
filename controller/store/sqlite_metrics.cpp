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

/// Returns true if a value was new.
bool write_values(Connection& connection, KnownSeries::Job& job, const MetricRow& metric) {
  int written = 0;
  for (const auto& value : metric.values) {
    const auto found = job.find(value.series);
    auto* entry = found != job.end() ? &found->second
                                     : declare(connection, job, metric.job, schema::undeclared_series(value.series));
    if (entry == nullptr) continue;
    if (entry->over_ranks == schema::OverRanks::kRank0 && metric.rank != 0) continue;
    written += connection.run(
        "INSERT INTO series_values (job_id, attempt, step, series, rank, value) "
        "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        metric.job, metric.attempt, metric.step, entry->id, metric.rank, value.value);
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
schema::Series read_declaration(const Query& row, int column) {
  std::string name, unit, better, over_ranks;
  row.get_to(column, name, unit, better, over_ranks);
  return {name, unit, schema::better_of(better), schema::over_ranks_of(over_ranks)};
}

/// All series of the job by their ids, also those without a value.
std::map<std::int64_t, schema::Series> read_names(Connection& connection, core::JobId job) {
  Query row = connection.query("SELECT id, name, unit, better, over_ranks FROM series WHERE job_id = ?", job);
  std::map<std::int64_t, schema::Series> names;
  while (row.next()) names.emplace(row.get<std::int64_t>(0), read_declaration(row, 1));
  return names;
}

/// Adds the values of its series to each step. `steps` are in order of (attempt, step).
void read_values(Connection& connection, core::JobId job, std::vector<StepRow>& steps) {
  if (steps.empty()) return;
  const auto names = read_names(connection, job);
  const auto &first = steps.front().row, &last = steps.back().row;
  Query row = connection.query(
      "SELECT attempt, step, series, rank, value FROM series_values WHERE job_id = ?1 AND (attempt, step) >= (?2, ?3) "
      "AND (attempt, step) <= (?4, ?5) ORDER BY attempt, step, series, rank",
      job, first.attempt, first.step, last.attempt, last.step);
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
    const auto place = std::pair(row.get<core::AttemptNumber>(0), row.get<core::Step>(1));
    const auto id = row.get<std::int64_t>(2);
    if (place != std::pair(at->row.attempt, at->row.step) || id != series) finish();
    while (at != steps.end() && std::pair(at->row.attempt, at->row.step) < place) ++at;
    if (at == steps.end()) break;
    if (std::pair(at->row.attempt, at->row.step) != place) continue;  // rank 0 has not reported this step yet
    series = id;
    const auto known = names.find(series);
    if (known == names.end()) continue;
    if (!values) values.emplace(known->second.over_ranks);
    values->add(row.get<core::RankNumber>(3), row.get<double>(4));
  }
  if (at != steps.end()) finish();
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
    entry.over_ranks = schema::over_ranks_of(row.get<std::string>(1));
    row.get_to(2, entry.id, entry.attempt, entry.step);
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
    erased += static_cast<std::uint32_t>(connection.run(sql, job, most - erased));
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
  // A step is shown once rank 0 has reported it.
  auto steps = connection
                   .query(
                       "SELECT attempt, step, count(*), max(step_ms), max(memory_bytes), max(memory_peak_bytes), "
                       "sum(bytes_communicated), max(CASE rank WHEN 0 THEN at_ms END) "
                       "FROM rank_steps WHERE job_id = ?1 AND (attempt, step) > (?2, ?3) AND (?4 = 0 OR attempt = ?4) "
                       "GROUP BY attempt, step HAVING min(rank) = 0 ORDER BY attempt, step LIMIT ?5",
                       job, after_attempt, after_step, attempt, limit)
                   .all([&](const Query& found) {
                     StepRow step{{.job = job}};
                     auto& row = step.row;
                     found.get_to(0, row.attempt, row.step, step.ranks, row.step_ms, row.memory_bytes,
                                  row.memory_peak_bytes, row.bytes_communicated, row.at_ms);
                     return step;
                   });
  read_values(connection, job, steps);
  return steps;
}

std::optional<MetricRow> read_newest_metric(Connection& connection, core::JobId job) {
  const SQLite::Transaction one_moment(connection.database());
  MetricRow metric{.job = job};
  {
    Query row = connection.query(
        "SELECT attempt, step, step_ms, memory_bytes, memory_peak_bytes, bytes_communicated, at_ms "
        "FROM rank_steps WHERE job_id = ? AND rank = 0 ORDER BY attempt DESC, step DESC LIMIT 1",
        job);
    if (!row.next()) return std::nullopt;
    row.get_to(0, metric.attempt, metric.step, metric.step_ms, metric.memory_bytes, metric.memory_peak_bytes,
               metric.bytes_communicated, metric.at_ms);
  }
  const auto names = read_names(connection, job);
  Query row = connection.query(
      "SELECT series, value FROM series_values WHERE job_id = ? AND attempt = ? AND step = ? AND rank = 0 "
      "ORDER BY series",
      job, metric.attempt, metric.step);
  while (row.next()) {
    const auto known = names.find(row.get<std::int64_t>(0));
    if (known != names.end()) metric.values.push_back({known->second.name, row.get<double>(1)});
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
        "WHERE job_id = ? AND newest_attempt IS NOT NULL ORDER BY id",
        job);
    while (row.next()) {
      auto& series = found.emplace_back(SeriesRow{.series = read_declaration(row, 1)});
      row.get_to(0, ids.emplace_back());
      row.get_to(5, series.attempt, series.step);
    }
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    OverRanks value(found[i].series.over_ranks);
    Query row = connection.query(
        "SELECT rank, value FROM series_values WHERE job_id = ? AND attempt = ? AND step = ? AND series = ?", job,
        found[i].attempt, found[i].step, ids[i]);
    while (row.next()) value.add(row.get<core::RankNumber>(0), row.get<double>(1));
    found[i].value = value.value().value_or(0);
  }
  return found;
}

}  // namespace store
