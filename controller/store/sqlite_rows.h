#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "controller/store/sqlite_database.h"
#include "controller/store/sqlite_metrics.h"
#include "controller/store/store.h"

namespace store {

// The reading half of the SQLite store. Each function is one statement, so that it sees one state of the database.

std::optional<core::Job> read_job(Connection& connection, core::JobId id);
std::vector<core::Job> read_open_jobs(Connection& connection);
std::vector<JobRow> read_list(Connection& connection, const ListFilter& filter);
std::int64_t read_count(Connection& connection, std::span<const core::JobState> states, const std::string& sweep);
std::vector<StoredEvent> read_node_losses(Connection& connection, core::Time since, std::uint32_t limit);
std::vector<StoredEvent> read_events(Connection& connection, core::JobId job, std::int64_t after_id,
                                     std::uint32_t limit);
Totals read_totals(Connection& connection, std::int64_t after_event, std::uint32_t most);
std::vector<PendingAction> read_pending_actions(Connection& connection);
std::vector<PartitionRow> read_partitions(Connection& connection);
std::vector<AuditRow> read_audit(Connection& connection, std::int64_t before_id, const std::string& partition,
                                 std::uint32_t limit);
std::string read_secret(Connection& connection);

/// Hours since 1970.
std::int64_t hour_of(core::Time time);

/// Tells whether an attempt has ended, so that it will tell no further step.
using IsOver = std::function<bool(core::JobId, core::AttemptNumber)>;

/// Does the work of Store::age_metrics() in the transaction of the caller.
///
/// An hour of an attempt ages twice: first its rows of ranks are deleted, and then its step rows, as far as buckets
/// hold them: of an attempt that is over all of them, and of others all but the newest. What may be deleted is noted
/// before the first row is, in the same transaction: a row that is sent again meanwhile is left out, and never counted
/// twice.
bool age_metrics(Connection& connection, MetricBuckets& buckets, core::Time now, const MetricsKeep& keep,
                 std::uint32_t most, const IsOver& is_over);

/// Gives some free pages at the end of the file back to the disk, if so many are free that the next rows need them not.
/// Returns true if there are more.
bool give_back_pages(Connection& connection);

}  // namespace store
