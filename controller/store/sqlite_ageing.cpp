#include "controller/store/sqlite_ageing.h"

#include <algorithm>
#include <optional>

namespace store {
namespace {

/// Fewer free pages (4 MiB), or fewer than a quarter of all, are kept for the next rows.
constexpr std::int64_t kPagesKept = 1024;
constexpr std::int64_t kShareKept = 4;
constexpr const char* kGiveBackSome = "PRAGMA incremental_vacuum(512)";

/// An hour of an attempt that is due.
struct Due {
  core::JobId job = 0;
  core::AttemptNumber attempt = 0;
  std::int64_t hour = 0;
};

/// The oldest hour that ended `kept` ago; nullopt: none.
std::optional<Due> find_due(Connection& connection, bool is_summed, core::Time now, core::Millis kept) {
  Query row = connection.query(
      "SELECT job_id, attempt, hour FROM metric_hours WHERE is_summed = ? AND hour < ? ORDER BY hour LIMIT 1",
      is_summed, hour_of(now - kept));
  if (!row.next()) return std::nullopt;
  Due due;
  row.get_to(0, due.job, due.attempt, due.hour);
  return due;
}

/// The last step that was stored in this hour, or before it.
core::Step last_step_of(Connection& connection, const Due& due) {
  const auto before_next = connection.first<core::Step>(
      "SELECT after_step FROM metric_hours WHERE job_id = ? AND attempt = ? AND hour > ? ORDER BY hour LIMIT 1",
      due.job, due.attempt, due.hour);
  if (before_next) return *before_next;
  return connection
      .first<core::Step>("SELECT step FROM step_rows WHERE job_id = ? AND attempt = ? ORDER BY step DESC LIMIT 1",
                         due.job, due.attempt)
      .value_or(MetricBuckets::kNothingAged);
}

constexpr core::Step after(core::Step step) {
  return step == std::numeric_limits<core::Step>::max() ? step : step + 1;
}

/// Returns true when all rows of ranks up to this step are deleted.
bool delete_rank_rows(Connection& connection, const Due& due, core::Step last, std::uint32_t most) {
  const auto stop = connection.first<core::Step>(
      "SELECT step FROM rank_steps WHERE job_id = ? AND attempt = ? AND step <= ? ORDER BY step LIMIT 1 OFFSET ?",
      due.job, due.attempt, last, most);
  const auto until = stop.value_or(last);
  connection.run("DELETE FROM series_values WHERE job_id = ? AND attempt = ? AND step <= ?", due.job, due.attempt,
                 until);
  connection.run("DELETE FROM rank_steps WHERE job_id = ? AND attempt = ? AND step <= ?", due.job, due.attempt, until);
  return !stop;
}

void age_rank_rows(Connection& connection, MetricBuckets& buckets, const Due& due, std::uint32_t most) {
  const auto last = last_step_of(connection, due);
  auto& progress = buckets.of(connection, due.job, due.attempt);
  if (after(last) > progress.rank_rows_from) {
    progress.rank_rows_from = after(last);
    connection.run("UPDATE metric_attempts SET rank_rows_from = ? WHERE job_id = ? AND attempt = ?",
                   progress.rank_rows_from, due.job, due.attempt);
  }
  if (!delete_rank_rows(connection, due, last, most)) return;
  connection.run("UPDATE metric_hours SET is_summed = 1 WHERE job_id = ? AND attempt = ? AND hour = ?", due.job,
                 due.attempt, due.hour);
}

/// Returns true when all step rows before this step are deleted.
bool delete_step_rows(Connection& connection, const Due& due, core::Step end, std::uint32_t most) {
  const auto stop = connection.first<core::Step>(
      "SELECT step FROM step_rows WHERE job_id = ? AND attempt = ? AND step < ? ORDER BY step LIMIT 1 OFFSET ?",
      due.job, due.attempt, end, most);
  connection.run("DELETE FROM step_rows WHERE job_id = ? AND attempt = ? AND step < ?", due.job, due.attempt,
                 stop.value_or(end));
  return !stop;
}

/// `now`: in hours since 1970.
void age_step_rows(Connection& connection, MetricBuckets& buckets, const Due& due, std::int64_t now, std::uint32_t most,
                   const IsOver& is_over) {
  auto& progress = buckets.of(connection, due.job, due.attempt);
  const bool is_newest = due.hour >= progress.hour;
  const bool ends = is_newest && is_over(due.job, due.attempt);
  // Buckets may be missing since a series was declared anew.
  if (!buckets.settle_stored(connection, due.job, due.attempt, ends)) return;
  const auto settled = progress.settled[0];
  const auto end = ends ? settled : std::min(after(last_step_of(connection, due)), settled) / kWidths[0] * kWidths[0];
  if (end > std::max<core::Step>(0, progress.step_rows_from)) {
    progress.step_rows_from = end;
    connection.run("UPDATE metric_attempts SET step_rows_from = ? WHERE job_id = ? AND attempt = ?", end, due.job,
                   due.attempt);
  }
  if (end > 0 && !delete_step_rows(connection, due, end, most)) return;
  // It is silent, and may go on. Its newest steps are looked at again.
  if (is_newest && !ends) return buckets.put_off(connection, due.job, due.attempt, now);
  connection.run("DELETE FROM metric_hours WHERE job_id = ? AND attempt = ? AND hour = ?", due.job, due.attempt,
                 due.hour);
}

}  // namespace

std::int64_t hour_of(core::Time time) {
  return std::chrono::floor<std::chrono::hours>(time.time_since_epoch()).count();
}

bool age_metrics(Connection& connection, MetricBuckets& buckets, core::Time now, const MetricsKeep& keep,
                 std::uint32_t most, const IsOver& is_over) {
  if (const auto due = find_due(connection, false, now, keep.rank_rows)) {
    age_rank_rows(connection, buckets, *due, most);
    return true;
  }
  if (const auto due = find_due(connection, true, now, keep.step_rows)) {
    age_step_rows(connection, buckets, *due, hour_of(now), most, is_over);
    return true;
  }
  return false;
}

bool give_back_pages(Connection& connection) {
  auto& database = connection.database();
  const auto free = database.execAndGet("PRAGMA freelist_count").getInt64();
  const auto all = database.execAndGet("PRAGMA page_count").getInt64();
  if (free <= std::max(kPagesKept, all / kShareKept)) return false;
  database.exec(kGiveBackSome);
  return true;
}

}  // namespace store
