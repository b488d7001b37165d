#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "controller/store/sqlite_database.h"

namespace store {

// [Note: two databases]
// A store has two files: muster.db with the jobs, and metrics.db beside it. What the people and the scheduler were told
// is in the first, and it rules. Metrics are written to the second alone, so a commit of one file never waits for the
// other, and each file is right after a crash by itself: rows of an attempt are stored only after the event that
// started it, and a removed job is done only when its metrics are gone. Two files of different times, as after a
// restore, are made right when they are opened: metrics of jobs and attempts that muster.db does not know are removed,
// before a new attempt can have the same number. No file says how far the reports of a rank are stored: a rank sends
// its rows until they are acknowledged, and a row that is there is not stored twice.
//
// Both files hold the same random name of their pair, so metrics of another store are never taken.

/// metrics.db beside the database of jobs.
std::filesystem::path metrics_file_of(const std::filesystem::path& jobs_file);

/// Gives both databases the name of their pair, or checks it. The schema of both is there. Throws Error kOther if they
/// belong to different stores.
void pair_databases(Database& jobs, Database& metrics);

/// Removes the metrics of jobs and attempts that the database of jobs does not know.
void remove_strange_metrics(Database& jobs, Database& metrics, const std::function<void(const std::string&)>& tell);

}  // namespace store
