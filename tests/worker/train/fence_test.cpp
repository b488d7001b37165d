#include "worker/train/fence.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "tests/worker/temporary_folder.h"

namespace worker {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryFolder;
using testing::write_file;

/// True if some process holds the fence's lock in a way that keeps the controller out.
bool controller_must_wait(const TemporaryFolder& folder) {
  const int fd = ::open((folder / "FENCE.lock").c_str(), O_RDWR | O_CREAT, 0644);
  const bool held = ::flock(fd, LOCK_EX | LOCK_NB) != 0;
  ::close(fd);
  return held;
}

TEST(Fence, WithoutOneEveryAttemptMayCommit) {
  const TemporaryFolder folder;
  Fence fence(folder.path(), 7, 1);
  EXPECT_EQ(fence.may_commit(), "");
}

TEST(Fence, TheNewestAttemptMayCommitAndAnOlderOneMayNot) {
  const TemporaryFolder folder;
  write_file(folder / "FENCE", "job 7 attempt 2\n");
  Fence second(folder.path(), 7, 2), first(folder.path(), 7, 1);
  EXPECT_EQ(second.may_commit(), "");
  EXPECT_THAT(first.may_commit(), HasSubstr("attempt 2 owns this job now"));
}

TEST(Fence, ThatNamesAnotherJobRefuses) {
  const TemporaryFolder folder;
  write_file(folder / "FENCE", "job 8 attempt 1\n");
  EXPECT_THAT(Fence(folder.path(), 7, 3).may_commit(), HasSubstr("job 8 owns this folder now"));
  write_file(folder / "FENCE", "attempt 2\n");
  EXPECT_EQ(Fence(folder.path(), 7, 3).may_commit(), "") << "no job is named";
}

TEST(Fence, IsLookedAtWithoutItsLock) {
  const TemporaryFolder folder;
  Fence fence(folder.path(), 7, 1);
  const int fd = ::open((folder / "FENCE.lock").c_str(), O_RDWR | O_CREAT, 0644);
  ASSERT_EQ(::flock(fd, LOCK_EX | LOCK_NB), 0) << "as while it is raised";
  EXPECT_EQ(fence.may_write(), "");
  write_file(folder / "FENCE", "job 7 attempt 2\n");
  EXPECT_THAT(fence.may_write(), HasSubstr("attempt 2 owns this job now"));
  EXPECT_EQ(Fence(folder.path(), 7, 2).may_write(), "");
  EXPECT_EQ(Fence(folder.path(), 7, 0).may_write(), "") << "without a controller there is none";
  ::close(fd);
}

TEST(Fence, ItsLockIsClosedToOthers) {
  const TemporaryFolder folder;
  const auto mask = ::umask(0022);
  EXPECT_EQ(Fence(folder.path(), 7, 1).may_commit(), "");
  ::umask(mask);
  struct stat status {};
  ASSERT_EQ(::stat((folder / "FENCE.lock").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
}

TEST(Fence, CannotBeRaisedBetweenCheckAndCommit) {
  const TemporaryFolder folder;
  Fence fence(folder.path(), 7, 1);
  EXPECT_FALSE(controller_must_wait(folder));
  ASSERT_EQ(fence.may_commit(), "");
  EXPECT_TRUE(controller_must_wait(folder));
  fence.release();
  EXPECT_FALSE(controller_must_wait(folder));
}

TEST(Fence, ARefusalHoldsNoLock) {
  const TemporaryFolder folder;
  write_file(folder / "FENCE", "job 7 attempt 9\n");
  Fence fence(folder.path(), 7, 1);
  ASSERT_NE(fence.may_commit(), "");
  EXPECT_FALSE(controller_must_wait(folder));
}

TEST(Fence, GarbageInTheFileRefuses) {
  const TemporaryFolder folder;
  for (const char* text : {"", "attempt", "attempt 1", "attempt x\n", "attempt 1 2\n", "1\n"}) {
    write_file(folder / "FENCE", text);
    Fence fence(folder.path(), 7, 1);
    EXPECT_THAT(fence.may_commit(), HasSubstr("does not say \"job J attempt N\"")) << text;
  }
}

TEST(Fence, WithoutAControllerThereIsNone) {
  const TemporaryFolder folder;
  write_file(folder / "FENCE", "job 7 attempt 9\n");
  Fence fence(folder.path(), 7, 0);
  EXPECT_EQ(fence.may_commit(), "");
}

}  // namespace
}  // namespace worker
