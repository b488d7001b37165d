// Goal: a commit is on disk when append() returns.
// Method: a test cannot cut the power, so it counts the flushes that SQLite asks the system for.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "controller/store/sqlite_store.h"
#include "tests/controller/store/saga.h"
#include "tests/temporary_folder.h"

namespace {
std::atomic<int> flushes{0};
}

/// These two replace the C library's functions.
extern "C" int fsync(int fd) {
  ++flushes;
  return static_cast<int>(::syscall(SYS_fsync, fd));
}
extern "C" int fdatasync(int fd) {
  ++flushes;
  return static_cast<int>(::syscall(SYS_fdatasync, fd));
}

namespace test {
namespace {

TEST(SqliteFlush, EachCommitIsOnDiskBeforeItsCallReturns) {
  const TemporaryFolder folder;
  const auto store = store::open_sqlite_store(folder.path() / "muster.db");
  Saga saga(*store, "r");
  saga.tell(submitted());
  // The first commit does not count: SQLite creates its files with it.
  int before = flushes;
  saga.tell(core::AttemptLaunched{1, "handle", "node1", {}});
  EXPECT_GT(flushes, before);
  before = flushes;
  EXPECT_EQ(store->load(saga.job().id)->version, saga.job().version);
  EXPECT_EQ(flushes, before) << "reading flushes nothing";
}

}  // namespace
}  // namespace test
