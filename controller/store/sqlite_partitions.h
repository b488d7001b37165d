#pragma once

#include <string>
#include <vector>

#include "store/sqlite_connection.h"
#include "store/store.h"

namespace store {

// What the SQLite store knows of partitions, and of who changed them.

std::vector<PartitionRow> read_partitions(Connection& connection);
std::vector<AuditRow> read_audit(Connection& connection, std::int64_t before_id, const std::string& partition,
                                 std::uint32_t limit);
/// Inside a transaction.
void write_partition_change(Connection& connection, const AuditRow& change);

}  // namespace store
