// Goal: both stores keep the partitions' policies and who changed them. The store on disk keeps the changes for ever.
// Method: one typed suite on a fresh store of each kind; the database is opened again, and SQL tries to delete changes.
#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/store/sqlite_store.h"
#include "tests/controller/store/memory_store.h"
#include "tests/temporary_folder.h"

namespace test {
namespace {

using store::AuditRow;
using store::PartitionRow;
using testing::ElementsAre;
using testing::IsEmpty;

AuditRow change(const std::string& partition, const std::string& before, const std::string& after, int at = 1000) {
  return {0, core::Time(core::Millis(at)), "root", before.empty() ? "add" : "set", partition, before, after};
}
AuditRow numbered(AuditRow row, std::int64_t id) {
  row.id = id;
  return row;
}

struct Memory {
  store::MemoryStore store;
  store::Store& get() { return store; }
};
struct Sqlite {
  TemporaryFolder folder;
  std::unique_ptr<store::Store> store = store::open_sqlite_store(folder.path() / "muster.db");
  store::Store& get() { return *store; }
};

template <typename Kind>
class PartitionStore : public testing::Test {
 protected:
  store::Store& store() { return kind_.get(); }

 private:
  Kind kind_;
};
using Kinds = testing::Types<Memory, Sqlite>;
TYPED_TEST_SUITE(PartitionStore, Kinds);

TYPED_TEST(PartitionStore, IsEmptyAtFirst) {
  EXPECT_THAT(this->store().partitions(), IsEmpty());
  EXPECT_THAT(this->store().audit(0, "", 10), IsEmpty());
}

TYPED_TEST(PartitionStore, KeepsTheNewestPolicyAndEveryChange) {
  auto& store = this->store();
  const auto first = change("main", "", R"({"max_nodes":2})");
  const auto second = change("main", R"({"max_nodes":2})", R"({"max_nodes":4})", 2000);
  const auto other = change("big", "", "{}", 2000);
  store.change_partitions({&first, 1});
  const std::vector<AuditRow> both{second, other};
  store.change_partitions(both);
  EXPECT_THAT(store.partitions(), ElementsAre(PartitionRow{"big", "{}"}, PartitionRow{"main", R"({"max_nodes":4})"}));
  EXPECT_THAT(store.audit(0, "", 10), ElementsAre(numbered(other, 3), numbered(second, 2), numbered(first, 1)));
  EXPECT_THAT(store.audit(0, "", 1), ElementsAre(numbered(other, 3)));
  EXPECT_THAT(store.audit(3, "", 10), ElementsAre(numbered(second, 2), numbered(first, 1)));
  EXPECT_THAT(store.audit(0, "main", 10), ElementsAre(numbered(second, 2), numbered(first, 1)));
  EXPECT_THAT(store.audit(2, "main", 10), ElementsAre(numbered(first, 1)));
}

TYPED_TEST(PartitionStore, ARemovedPartitionIsGoneAndItsHistoryIsNot) {
  auto& store = this->store();
  const std::vector<AuditRow> changes{change("main", "", "{}"), change("main", "{}", "")};
  store.change_partitions(changes);
  EXPECT_THAT(store.partitions(), IsEmpty());
  EXPECT_EQ(store.audit(0, "main", 10).size(), 2U);
}

TYPED_TEST(PartitionStore, KeepsTheOrderToDrainAndWhoGaveIt) {
  auto& store = this->store();
  EXPECT_EQ(store.drain(), std::nullopt);
  const core::Time given(core::Millis(1000)), taken(core::Millis(2000));
  const core::Drain order{given, "ann", "new driver"};
  store.change_drain(order, "ann", given);
  EXPECT_EQ(store.drain(), order);
  EXPECT_THAT(store.partitions(), IsEmpty());
  store.change_drain(std::nullopt, "bob", taken);
  EXPECT_EQ(store.drain(), std::nullopt);
  const auto rows = store.audit(0, "", 10);
  const std::string text = rows.at(1).after;
  EXPECT_THAT(text, testing::HasSubstr("new driver"));
  EXPECT_THAT(rows, ElementsAre(AuditRow{2, taken, "bob", "resume", "", text, ""},
                                AuditRow{1, given, "ann", "drain", "", "", text}));
}

TEST(PartitionsOnDisk, AreThereWhenTheFileIsOpenedAgain) {
  TemporaryFolder folder;
  const auto file = folder.path() / "muster.db";
  const auto row = change("main", "", R"({"users":["ann"]})");
  store::open_sqlite_store(file)->change_partitions({&row, 1});
  const auto again = store::open_sqlite_store(file);
  EXPECT_THAT(again->partitions(), ElementsAre(PartitionRow{"main", R"({"users":["ann"]})"}));
  EXPECT_THAT(again->audit(0, "", 10), ElementsAre(numbered(row, 1)));
}

TEST(PartitionsOnDisk, AChangeThatFailsLeavesNothingOfItsGroup) {
  TemporaryFolder folder;
  const auto store = store::open_sqlite_store(folder.path() / "muster.db");
  const std::vector<AuditRow> changes{change("main", "", "{}"), change("big", "", "no JSON")};
  EXPECT_THROW(store->change_partitions(changes), store::Error);
  EXPECT_THAT(store->partitions(), IsEmpty());
  EXPECT_THAT(store->audit(0, "", 10), IsEmpty());
}

TEST(PartitionsOnDisk, TheAuditCanOnlyGrow) {
  TemporaryFolder folder;
  const auto file = folder.path() / "muster.db";
  const auto row = change("main", "", "{}");
  store::open_sqlite_store(file)->change_partitions({&row, 1});
  SQLite::Database database(file.string(), SQLite::OPEN_READWRITE);
  EXPECT_THROW(database.exec("UPDATE audit SET user = 'nobody'"), SQLite::Exception);
  EXPECT_THROW(database.exec("DELETE FROM audit"), SQLite::Exception);
}

}  // namespace
}  // namespace test
