#pragma once

#include <optional>
#include <string>
#include <vector>

#include "controller/store/sqlite_connection.h"
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

}  // namespace store
