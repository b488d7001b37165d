#include "controller/store/sqlite_pair.h"

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "controller/store/sqlite_metrics.h"

namespace store {
namespace {

constexpr std::uint32_t kRowsErasedAtOnce = 50'000;
constexpr const char* kReadPair = "SELECT value FROM meta WHERE key = 'pair'";
constexpr const char* kWritePair = "INSERT INTO meta (key, value) VALUES ('pair', ?)";

using Tell = std::function<void(const std::string&)>;

/// The newest attempt of a job that is there; nullopt: there is no such job, or it is removed.
std::optional<core::AttemptNumber> newest_attempt(Connection& jobs, core::JobId job) {
  return jobs.first<core::AttemptNumber>(
      "SELECT ifnull((SELECT number FROM attempts WHERE job_id = ?1 ORDER BY number DESC LIMIT 1), 0) FROM jobs "
      "WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM removed_jobs WHERE job_id = ?1)",
      job);
}

/// Finds the newest value of each series again, after attempts were removed.
void find_newest_values(Connection& connection, core::JobId job) {
  connection.run("UPDATE series SET newest_attempt = NULL, newest_step = NULL WHERE job_id = ?", job);
  std::map<std::int64_t, StepKey> newest;
  {
    Query row = connection.query("SELECT attempt, step, " MUSTER_STEP_COLUMNS
                                 " FROM step_rows WHERE job_id = ? ORDER BY attempt DESC, step DESC",
                                 job);
    while (row.next()) {
      const StepKey key{job, row.get<core::AttemptNumber>(0), row.get<core::Step>(1)};
      for (const auto& [series, of] : read_step_total(row, 2).values) newest.try_emplace(series, key);
    }
  }
  {
    // Values whose steps have aged out are in buckets alone.
    Query row = connection.query(
        "SELECT curve - ?2, attempt, last_step FROM metric_buckets WHERE job_id = ?1 AND level = 0 AND curve > ?2 "
        "ORDER "
        "BY attempt DESC, bucket DESC",
        job, curve_of_series(0));
    while (row.next()) {
      newest.try_emplace(row.get<std::int64_t>(0),
                         StepKey{job, row.get<core::AttemptNumber>(1), row.get<core::Step>(2)});
    }
  }
  for (const auto& [series, key] : newest) {
    connection.run("UPDATE series SET newest_attempt = ?, newest_step = ? WHERE job_id = ? AND id = ?", key.attempt,
                   key.step, job, series);
  }
}

/// Removes the metrics of the attempts after this one; nullopt: of the job.
void remove_after(Database& metrics, core::JobId job, std::optional<core::AttemptNumber> ruling) {
  const auto erase = [&](Connection& connection) {
    return ruling ? erase_metrics_after(connection, job, *ruling, kRowsErasedAtOnce)
                  : erase_metrics(connection, job, kRowsErasedAtOnce);
  };
  while (metrics.writing(erase) == kRowsErasedAtOnce) continue;
  if (ruling) metrics.writing([&](Connection& connection) { find_newest_values(connection, job); });
}

}  // namespace

std::filesystem::path metrics_file_of(const std::filesystem::path& jobs_file) {
  return jobs_file.parent_path() / "metrics.db";
}

void pair_databases(Database& jobs, Database& metrics) {
  const auto name_of = [](Connection& connection) { return connection.first<std::string>(kReadPair); };
  auto name = jobs.writing(name_of);
  const auto other = metrics.writing(name_of);
  const bool is_fresh = !other && metrics.writing([](Connection& connection) {
    return !connection.first<int>("SELECT 1 FROM metric_attempts LIMIT 1");
  });
  if (!name && is_fresh) {
    name = random_secret();
    jobs.writing([&](Connection& connection) { connection.run(kWritePair, *name); });
  }
  if (is_fresh) {
    metrics.writing([&](Connection& connection) { connection.run(kWritePair, *name); });
  } else if (name != other) {
    throw Error(Error::Kind::kOther, metrics.file() + " does not belong to " + jobs.file() +
                                         ", which may be an older backup: restore both from one backup, or move " +
                                         metrics.file() + " away together with " + metrics.file() +
                                         "-wal to go on without the metrics in it");
  }
}

void remove_strange_metrics(Database& jobs, Database& metrics, const Tell& tell) {
  const auto known = metrics.writing([](Connection& connection) {
    return connection.query("SELECT job_id, max(attempt) FROM metric_attempts GROUP BY job_id")
        .all([](const Query& row) {
          return std::pair{row.get<core::JobId>(0), row.get<core::AttemptNumber>(1)};
        });
  });
  struct Strange {
    core::JobId job;
    std::optional<core::AttemptNumber> ruling;  // the newest attempt that there is
  };
  const auto strange = jobs.writing([&](Connection& connection) {
    std::vector<Strange> all;
    for (const auto& [job, newest] : known) {
      const auto ruling = newest_attempt(connection, job);
      if (!ruling || newest > *ruling) all.push_back({job, ruling});
    }
    return all;
  });
  for (const auto& [job, ruling] : strange) remove_after(metrics, job, ruling);
  if (strange.empty()) return;
  tell(metrics.file() + " had metrics of " + std::to_string(strange.size()) + " jobs that " + jobs.file() +
       " does not know, or of attempts of them, as after a restore of one of the two: they are removed");
}

}  // namespace store
