#pragma once

#include <string>
#include <vector>

#include "store/sqlite_connection.h"
#include "store/store.h"

namespace store {

// The SQLite store's tables of partitions and of their changes.

std::vector<PartitionRow> read_partitions(Connection& connection);
std::vector<AuditRow> read_audit(Connection& connection, std::int64_t before_id, const std::string& partition,
                                 std::uint32_t limit);
/// Call it inside a transaction.
void write_partition_change(Connection& connection, const AuditRow& change);

}  // namespace store
