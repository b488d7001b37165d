#pragma once

#include <string>

#include "store/sqlite_connection.h"
#include "store/store.h"

namespace store {

// The writing half of the SQLite store. Call these functions inside a transaction.

/// Adds one event, its projections and its actions; returns the event's id. Throws Error kConflict.
std::int64_t write_commit(Connection& connection, const Commit& commit);
void write_action_state(Connection& connection, std::int64_t action_id, ActionState state, core::Time at);
/// Stores the change in the audit, and the partition's new policy.
void write_partition_change(Connection& connection, const AuditRow& change);
/// Stores the secret, unless the database has one.
void write_secret(Connection& connection, const std::string& secret);
void change_secret(Connection& connection, const std::string& secret);
void write_place(Connection& connection, const std::string& place);

}  // namespace store
