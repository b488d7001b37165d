// Goal: what append() has returned for is on disk, not only on its way there.
// Method: no power can be cut here, so the flushes that SQLite asks the system for are counted in its place.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "store/saga.h"
#include "store/sqlite_store.h"
#include "store/temp_folder.h"

namespace {
std::atomic<int> flushes{0};
}

/// Both stand before the C library's.
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
  const TempFolder folder;
  const auto store = store::open_sqlite_store(folder.path() / "muster.db");
  Saga saga(*store, "r");
  saga.tell(submitted());
  // Not the first one, with which SQLite makes its files.
  int before = flushes;
  saga.tell(core::AttemptLaunched{1, "handle", "node1", {}});
  EXPECT_GT(flushes, before);
  before = flushes;
  EXPECT_EQ(store->load(saga.job().id)->version, saga.job().version);
  EXPECT_EQ(flushes, before) << "reading flushes nothing";
}

}  // namespace
}  // namespace test
