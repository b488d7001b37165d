#include "store/sqlite_partitions.h"

#include <limits>

namespace store {

std::vector<PartitionRow> read_partitions(Connection& connection) {
  std::vector<PartitionRow> rows;
  for (Query row = connection.query("SELECT name, policy FROM partitions ORDER BY name"); row.next();) {
    rows.push_back({row.text(0), row.text(1)});
  }
  return rows;
}

std::vector<AuditRow> read_audit(Connection& connection, std::int64_t before_id, const std::string& partition,
                                 std::uint32_t limit) {
  const auto before = before_id == 0 ? std::numeric_limits<std::int64_t>::max() : before_id;
  const char* const of_all =
      "SELECT id, at_ms, user, action, partition, before, after FROM audit WHERE id < ? ORDER BY id DESC LIMIT ?";
  const char* const of_one =
      "SELECT id, at_ms, user, action, partition, before, after FROM audit WHERE id < ? AND partition = ? "
      "ORDER BY id DESC LIMIT ?";
  Query row = connection.query(partition.empty() ? of_all : of_one);
  row.with(before);
  if (!partition.empty()) row.with(partition);
  row.with(std::int64_t{limit});
  std::vector<AuditRow> rows;
  while (row.next()) {
    rows.push_back({row.integer(0), row.time(1), row.text(2), row.text(3), row.text(4), row.text(5), row.text(6)});
  }
  return rows;
}

void write_partition_change(Connection& connection, const AuditRow& change) {
  connection.query("INSERT INTO audit (at_ms, user, action, partition, before, after) VALUES (?, ?, ?, ?, ?, ?)")
      .with(change.at)
      .with(change.user)
      .with(change.action)
      .with(change.partition)
      .with(change.before)
      .with(change.after)
      .run();
  if (change.after.empty()) {
    connection.query("DELETE FROM partitions WHERE name = ?").with(change.partition).run();
    return;
  }
  connection.query("INSERT OR REPLACE INTO partitions (name, policy) VALUES (?, ?)")
      .with(change.partition)
      .with(change.after)
      .run();
}

}  // namespace store
