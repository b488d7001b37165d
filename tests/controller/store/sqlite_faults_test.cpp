// Goal: on a full or read-only disk the store loses nothing and says why, and it writes again once the disk takes
// writes. Method: real limits: a small tmpfs (needs root), a read-only mount, a file size limit in a child process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "controller/store/sqlite_store.h"
#include "tests/controller/store/error_of.h"
#include "tests/controller/store/saga.h"
#include "tests/temporary_folder.h"

namespace test {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;
using Kind = store::Error::Kind;

/// A file system of a few MiB for one test.
class TinyDisk {
 public:
  explicit TinyDisk(const char* size) {
    mounted_ = mount("tmpfs", path().c_str(), "tmpfs", 0, (std::string("size=") + size).c_str()) == 0;
  }
  ~TinyDisk() {
    if (mounted_) umount2(path().c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  const fs::path& path() const { return folder_.path(); }
  bool read_only() const { return mount("tmpfs", path().c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr) == 0; }
  void fill() const {
    std::ofstream filler(path() / "filler", std::ios::binary);
    const std::string block(4096, 'x');
    while (filler.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
    }
  }
  void make_room() const { fs::remove(path() / "filler"); }

 private:
  TemporaryFolder folder_;
  bool mounted_ = false;
};

/// Submits at most `bound` jobs until the store refuses one. Returns the refusal.
std::optional<store::Error> submit_until_refused(store::Store& store, int bound, std::vector<core::Job>& accepted) {
  for (int i = 0; i < bound; ++i) {
    Saga saga(store, "request-" + std::to_string(accepted.size()), std::string(2000, 's'));
    if (auto error = error_of([&] { saga.tell(submitted()); })) return error;
    accepted.push_back(saga.job());
  }
  return std::nullopt;
}

void expect_exactly(store::Store& store, const std::vector<core::Job>& accepted) {
  EXPECT_EQ(store.load_open(), accepted);
  EXPECT_EQ(store.last_event_id(), static_cast<std::int64_t>(accepted.size()));
}

TEST(SqliteFaults, AFullDiskRefusesWritesAndHealsWhenThereIsSpace) {
  const TinyDisk disk("4m");
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs needs root";
  std::vector<core::Job> accepted;
  {
    const auto store = store::open_sqlite_store(disk.path() / "muster.db");
    ASSERT_FALSE(submit_until_refused(*store, 3, accepted));
    for (int round = 0; round < 3; ++round) {
      disk.fill();
      const auto error = submit_until_refused(*store, 10000, accepted);
      ASSERT_TRUE(error) << "the disk never filled";
      EXPECT_EQ(error->kind(), Kind::kFull) << error->what();
      EXPECT_THAT(error->what(), HasSubstr("full"));
      EXPECT_THAT(error->what(), HasSubstr("muster.db"));
      expect_exactly(*store, accepted);
      const store::MetricRow row{.job = 1, .attempt = 1, .rank = 0, .step = round, .values = {{"loss", 1}}};
      const auto again = submit_until_refused(*store, 10, accepted);
      EXPECT_TRUE(again && again->kind() == Kind::kFull);
      disk.make_room();
      EXPECT_FALSE(submit_until_refused(*store, 3, accepted));
      EXPECT_FALSE(error_of([&] { store->add_metrics({&row, 1}); }));
      expect_exactly(*store, accepted);
    }
  }
  const auto store = store::open_sqlite_store(disk.path() / "muster.db");
  expect_exactly(*store, accepted);
}

TEST(SqliteFaults, OpeningOnAFullDiskSaysSoAndWorksLater) {
  const TinyDisk disk("1m");
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs needs root";
  disk.fill();
  const auto error = error_of([&] { store::open_sqlite_store(disk.path() / "muster.db"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), Kind::kFull) << error->what();
  EXPECT_THAT(error->what(), HasSubstr("full"));
  disk.make_room();
  EXPECT_EQ(store::open_sqlite_store(disk.path() / "muster.db")->next_job_id(), 1);
}

TEST(SqliteFaults, AReadOnlyFolderIsNamed) {
  const TinyDisk disk("4m");
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs needs root";
  store::open_sqlite_store(disk.path() / "muster.db").reset();
  if (!disk.read_only()) GTEST_SKIP() << "remounting needs root";
  for (const char* name : {"muster.db", "new.db"}) {
    const auto error = error_of([&] { store::open_sqlite_store(disk.path() / name); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind(), Kind::kFull) << error->what();
    EXPECT_THAT(error->what(), HasSubstr(disk.path().string()));
    EXPECT_THAT(error->what(), HasSubstr("cannot be written"));
  }
}

/// Runs in a child process, since the limit applies to the whole process.
int refused_under_a_size_limit(const fs::path& file) {
  signal(SIGXFSZ, SIG_IGN);
  const auto store = store::open_sqlite_store(file);
  std::vector<core::Job> accepted;
  if (submit_until_refused(*store, 3, accepted)) return 1;
  const rlimit small{fs::file_size(file.string() + "-wal") + 20000, RLIM_INFINITY};
  if (setrlimit(RLIMIT_FSIZE, &small) != 0) return 2;
  const auto error = submit_until_refused(*store, 1000, accepted);
  if (!error) return 3;
  if (error->kind() != Kind::kFull) return 4;
  const rlimit none{RLIM_INFINITY, RLIM_INFINITY};
  if (setrlimit(RLIMIT_FSIZE, &none) != 0) return 5;
  if (submit_until_refused(*store, 3, accepted)) return 6;
  return store->load_open() == accepted ? 0 : 7;
}

TEST(SqliteFaults, AFileSizeLimitIsAFullDiskToo) {
  const TemporaryFolder folder;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(refused_under_a_size_limit(folder.path() / "muster.db"));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace test
