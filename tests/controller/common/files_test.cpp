// Goal: what lies on disk is whole, private where it must be, and never goes back.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <system_error>

#include "agent/watch/agent_files.h"
#include "base/durable_file.h"
#include "controller/common/data_folder.h"
#include "tests/controller/service/bench.h"

namespace common::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

unsigned mode_of(const std::filesystem::path& path) {
  struct stat info {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0);
  return info.st_mode & 0777;
}

std::string failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "no failure";
}

TEST(TokenFile, IsMadeOnceAndPrivate) {
  service::testing::TempFolder folder;
  const auto file = folder.path() / "token";
  const auto token = load_or_create_token(file);
  EXPECT_EQ(token.size(), 43U) << "32 bytes, base64url";
  EXPECT_EQ(token.find_first_of("+/=\n"), std::string::npos);
  EXPECT_EQ(mode_of(file), 0600U);
  EXPECT_EQ(load_or_create_token(file), token);
}

TEST(TokenFile, ThatOthersCanReadIsRefusedWithTheRemedy) {
  service::testing::TempFolder folder;
  const auto file = folder.path() / "token";
  load_or_create_token(file);
  std::filesystem::permissions(file, std::filesystem::perms(0640));
  EXPECT_THAT(failure_of([&] { load_or_create_token(file); }), HasSubstr("chmod 600"));
}

TEST(TokenFile, ThatIsEmptyIsRefused) {
  service::testing::TempFolder folder;
  const auto file = folder.path() / "token";
  base::create_file_durably(file, "", 0600);
  EXPECT_THAT(failure_of([&] { load_or_create_token(file); }), HasSubstr("delete it"));
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
}

// Goal: whoever is killed inside the first start leaves a folder that the next start takes.
// Method: a process that may not write a byte is killed by the kernel at its first, with the file open.
TEST(TokenFile, WhoseMakerWasKilledIsMadeByTheNext) {
  service::testing::TempFolder folder;
  const auto file = folder.path() / "token";
  const auto child = ::fork();
  if (child == 0) {
    const rlimit nothing{0, 0};
    ::setrlimit(RLIMIT_CORE, &nothing);
    ::setrlimit(RLIMIT_FSIZE, &nothing);
    ::signal(SIGXFSZ, SIG_DFL);
    load_or_create_token(file);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ) << status;
  EXPECT_EQ(names_in(folder.path()).size(), 1U) << "it had opened a file";
  EXPECT_EQ(load_or_create_token(file).size(), 43U);
  EXPECT_THAT(names_in(folder.path()), ::testing::ElementsAre("token"));
}

TEST(TokenFile, ThatIsThereIsReadWithoutWritingAnything) {
  service::testing::TempFolder folder;
  const auto file = folder.path() / "token";
  const auto token = load_or_create_token(file);
  const auto long_ago = std::filesystem::last_write_time(folder.path()) - 24h;
  std::filesystem::last_write_time(folder.path(), long_ago);
  EXPECT_EQ(load_or_create_token(file), token);
  EXPECT_EQ(std::filesystem::last_write_time(folder.path()), long_ago) << "a full disk must not keep musterd from it";
}

TEST(RankToken, IsTheAttemptsOwn) {
  const auto token = rank_token("secret", 12, 3);
  EXPECT_EQ(token.size(), 64U);
  EXPECT_NE(token, rank_token("secret", 1, 23));
  EXPECT_NE(token, rank_token("secret", 12, 4));
  EXPECT_NE(token, rank_token("other", 12, 3));
  EXPECT_TRUE(same_secret(token, rank_token("secret", 12, 3)));
  EXPECT_FALSE(same_secret(token, ""));
}

// Numbers of jobs that were submitted since a backup are not given again after it is restored, also those of jobs
// that still wait in an array, and have no folder.
TEST(DataFolder, KnowsTheNewestJobByFoldersAndArrays) {
  service::testing::TempFolder folder;
  const DataFolder data(folder.path());
  EXPECT_EQ(data.newest_job_folder(), 0);
  for (const auto* job : {"7", "12", "not-one"}) base::make_folders(folder.path() / "jobs" / job);
  EXPECT_EQ(data.newest_job_folder(), 12);
  const auto array = folder.path() / "slurm" / "set-9.1";
  base::make_folders(array);
  EXPECT_EQ(data.newest_job_folder(), 12) << "it was not finished";
  base::write_file_durably(array / "set.json",
                           R"({"format":1,"attempts":["/d/jobs/9/attempt-1","/d/jobs/15/attempt-1","/jobs/x"]})");
  EXPECT_EQ(data.newest_job_folder(), 15);
}

TEST(Fence, IsRaisedAndNeverLowered) {
  service::testing::TempFolder folder;
  const auto checkpoints = folder.path() / "deep" / "checkpoints";
  EXPECT_EQ(agent::watch::read_fence(checkpoints), std::nullopt);
  EXPECT_TRUE(agent::watch::raise_fence(checkpoints, {7, 2}, 1s));
  EXPECT_EQ(agent::watch::read_fence(checkpoints), (agent::protocol::Fence{7, 2}));
  EXPECT_TRUE(agent::watch::raise_fence(checkpoints, {7, 1}, 1s));
  EXPECT_EQ(agent::watch::read_fence(checkpoints), (agent::protocol::Fence{7, 2}));
  EXPECT_TRUE(agent::watch::raise_fence(checkpoints, {7, 3}, 1s));
  EXPECT_EQ(agent::watch::read_fence(checkpoints), (agent::protocol::Fence{7, 3}));
}

TEST(Fence, GoesOverToAnotherJobWithTheJobsFirstAttempt) {
  service::testing::TempFolder folder;
  for (const auto* before : {"job 9 attempt 5\n", "attempt 5\n"}) {
    base::write_file_durably(folder.path() / "FENCE", before);
    EXPECT_TRUE(agent::watch::raise_fence(folder.path(), {8, 1}, 1s));
    EXPECT_EQ(agent::watch::read_fence(folder.path()), (agent::protocol::Fence{8, 1})) << before;
  }
}

TEST(Fence, IsRaisedEvenWhenAnOldRankHoldsTheLock) {
  service::testing::TempFolder folder;
  ASSERT_TRUE(agent::watch::raise_fence(folder.path(), {7, 1}, 1s));
  const int fd = ::open((folder.path() / "FENCE.lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(fd, LOCK_SH), 0);
  EXPECT_FALSE(agent::watch::raise_fence(folder.path(), {7, 2}, 60ms));
  EXPECT_EQ(agent::watch::read_fence(folder.path()), (agent::protocol::Fence{7, 2}));
  ::close(fd);
}

TEST(Fence, ThatIsDamagedIsReplaced) {
  service::testing::TempFolder folder;
  base::write_file_durably(folder.path() / "FENCE", "garbage");
  EXPECT_EQ(agent::watch::read_fence(folder.path()), std::nullopt);
  agent::watch::raise_fence(folder.path(), {7, 4}, 1s);
  EXPECT_EQ(agent::watch::read_fence(folder.path()), (agent::protocol::Fence{7, 4}));
}

}  // namespace
}  // namespace common::testing
