// Goal: programs that want the same data at once make them once, and damaged data in the cache mend themselves.
// Method: the real folders and locks; a source whose reading is counted, in several processes.
#include "data/prepare/prepare_job.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <stdexcept>

#include "data/format/dataset.h"
#include "data/tokenizers/tokenizer.h"
#include "tests/data/prepare/folder_bytes.h"

namespace data::prepare {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

const std::atomic<int> kGoOn{0};

class Cache : public ::testing::Test {
 protected:
  /// A source that notes each reading in the file "readings".
  Job job(const std::string& text = "some text") const {
    const auto bytes = data::tokenizers::open_tokenizer("bytes");
    TextSource source{
        RecordKind::kText, text, "texts of the test", {}, 1, [this, text](std::int64_t, const auto& sink) {
          std::ofstream(folder_ / "readings", std::ios::app) << 'x';
          for (int i = 0; i < 500; ++i) sink({text});
        }};
    return {.records = tokenized(std::move(source), bytes, ""),
            .splits = {.validation = 0, .seed = 1},
            .tokenizer = bytes,
            .tokenizer_path = "bytes",
            .made_by = "a test"};
  }

  Ended run(Job& job, const std::atomic<int>& stop = kGoOn) const {
    Progress progress("test", "tokens", job.records.parts, std::chrono::hours(1));
    return prepare_in_cache(job, folder_ / "cache", progress, stop);
  }

  std::string made(const std::string& text = "some text") const {
    Job wanted = job(text);
    EXPECT_NE(run(wanted), Ended::kStopped);
    EXPECT_EQ(data::format::Dataset::open(wanted.folder, "train").records(), 500);
    return wanted.folder.native();
  }

  std::string readings() const { return ::test::read_file(folder_ / "readings"); }

  ::test::TemporaryFolder folder_;
};

TEST_F(Cache, DataAreMadeOnceAndUsedAgain) {
  const auto folder = made();
  EXPECT_THAT(folder, ::testing::ContainsRegex("/cache/data-[0-9a-f]{16}$"));
  EXPECT_EQ(made(), folder);
  EXPECT_EQ(readings(), "x");
  EXPECT_NE(made("another text"), folder);
  EXPECT_EQ(readings(), "xx");
}

TEST_F(Cache, DamagedDataAreMadeAnew) {
  const auto folder = made();
  const auto good = test::bytes_of(folder);
  const auto damage = [&](const std::string& file, const auto& change) {
    auto bytes = good.at(file);
    change(bytes);
    ::test::write_file(std::filesystem::path(folder) / file, bytes);
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(made(), folder);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("made anew: " + folder));
    EXPECT_EQ(test::differing(test::bytes_of(folder), good), "");
  };
  damage("train-00000.mdat", [](auto& bytes) { bytes[4100] ^= 1; });
  damage("train-00000.mdat", [](auto& bytes) { bytes.resize(bytes.size() / 2); });
  damage("data.json", [](auto& bytes) { bytes.resize(bytes.size() / 2); });
  EXPECT_EQ(readings(), "xxxx");
  EXPECT_FALSE(std::filesystem::exists(folder + ".damaged"));
}

// A file that a training has mapped keeps its bytes when the data are made anew.
TEST_F(Cache, AMappedFileStaysWhenDataAreMadeAnew) {
  const std::filesystem::path folder = made();
  const auto mapped = data::format::Dataset::open(folder, "train");
  ::test::write_file(folder / "data.json", "{");
  made();
  EXPECT_EQ(mapped.length(499), 9);
  mapped.verify(0, 1);
}

TEST_F(Cache, ProcessesThatStartAtOnceMakeTheDataOnce) {
  constexpr int kProcesses = 6;
  for (int i = 0; i < kProcesses; ++i) {
    if (::fork() == 0) {
      try {
        Job wanted = job();
        run(wanted);
        ::_exit(data::format::Dataset::open(wanted.folder, "train").records() == 500 ? 0 : 1);
      } catch (...) {
        ::_exit(2);
      }
    }
  }
  for (int i = 0; i < kProcesses; ++i) {
    int status = -1;
    ::wait(&status);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(readings(), "x");
}

TEST_F(Cache, WhatAKilledProcessHasBegunIsTakenUp) {
  const pid_t child = ::fork();
  if (child == 0) {
    Job dies = job();
    dies.records.make = [](std::int64_t, const PutRecord&) { ::kill(::getpid(), SIGKILL); };
    run(dies);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  made();
}

TEST_F(Cache, AProcessThatWaitsForAnotherCanBeStopped) {
  int begun[2], go_on[2];
  ASSERT_EQ(::pipe2(begun, O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(go_on, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(go_on[1]);
    Job waits = job();
    const auto make = waits.records.make;
    waits.records.make = [&](std::int64_t part, const PutRecord& put) {
      char byte = 'x';
      if (::write(begun[1], &byte, 1) != 1 || ::read(go_on[0], &byte, 1) != 1) ::_exit(3);
      make(part, put);
    };
    ::_exit(run(waits) == Ended::kDone ? 0 : 1);
  }
  char byte = 0;
  ASSERT_EQ(::read(begun[0], &byte, 1), 1);
  Job stopped = job();
  EXPECT_EQ(run(stopped, std::atomic<int>(SIGTERM)), Ended::kStopped);
  ASSERT_EQ(::write(go_on[1], "x", 1), 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (const int fd : {begun[0], begun[1], go_on[0], go_on[1]}) ::close(fd);
  EXPECT_EQ(readings(), "x");
}

// Method: the data's owner takes away what others may do, and another user tries.
TEST_F(Cache, DataOfAnotherUserAreUsedAndNeverRemoved) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root, which can become another user";
  const std::filesystem::path folder = made();
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
  const auto as_another = [&] {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(9);
      try {
        Job wanted = job();
        ::_exit(run(wanted) == Ended::kWasDone ? 0 : 1);
      } catch (const std::system_error&) {
        ::_exit(2);
      } catch (...) {
        ::_exit(3);
      }
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  EXPECT_EQ(as_another(), 0) << "the lock and the cache take no writes of this user";
  const auto share = [&](bool all_may_write) {
    ASSERT_EQ(::chmod((folder_ / "cache").c_str(), all_may_write ? 0777 : 0755), 0);
    ASSERT_EQ(::chmod((folder.native() + ".lock").c_str(), all_may_write ? 0666 : 0644), 0);
  };
  ASSERT_EQ(::chmod((folder / "train-00000.mdat").c_str(), 0600), 0);
  share(true);
  EXPECT_EQ(as_another(), 2) << "unreadable is no damage";
  EXPECT_TRUE(std::filesystem::exists(folder / "data.json"));
  share(false);
  std::filesystem::remove_all(folder);
  EXPECT_EQ(as_another(), 2) << "nothing can be made here";
}

TEST_F(Cache, ACacheThatCanNotBeMadeIsNamed) {
  ::test::write_file(folder_ / "cache", "a file");
  Job wanted = job();
  EXPECT_THAT([&] { run(wanted); },
              ::testing::ThrowsMessage<std::system_error>(HasSubstr((folder_ / "cache").native())));
}

}  // namespace
}  // namespace data::prepare
