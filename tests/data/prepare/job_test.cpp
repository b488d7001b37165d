// Goal: a command that is killed or stopped at any point and given again makes the bytes of one that never was, and a
// folder is never mixed from two commands.
// Method: a source of six parts whose reading kills the process; the real writers, threads and folders.
#include "data/prepare/prepare_job.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "data/format/dataset.h"
#include "data/tokenizers/tokenizer.h"
#include "tests/data/prepare/folder_bytes.h"

namespace data::prepare {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::int64_t kParts = 6;
constexpr std::int64_t kRecordsAPart = 40;

/// Texts that depend on part and number alone. The last part has none.
TextSource source_of_texts(const std::string& description = "texts 1") {
  return {
      RecordKind::kText, description, "texts of the test", {}, kParts, [](std::int64_t part, const RecordSink& sink) {
        if (part == kParts - 1) return;
        for (std::int64_t i = 0; i < kRecordsAPart; ++i) {
          sink({"part " + std::to_string(part) + ", " + std::string(static_cast<std::size_t>(i * 7 % 50), 'x')});
        }
      }};
}

class JobTest : public ::testing::Test {
 protected:
  Job job(const std::string& name, int jobs = 1) const {
    const auto bytes = data::tokenizers::open_tokenizer("bytes");
    return {.records = tokenized(source_of_texts(), bytes, ""),
            .splits = {.validation = 0.1, .seed = 3},
            .folder = folder_ / name,
            .tokenizer = bytes,
            .tokenizer_path = "bytes",
            .made_by = "a test",
            .jobs = jobs};
  }

  static Ended run(const Job& job, Counts* counts = nullptr, const std::atomic<int>& stop = kGoOn) {
    Progress progress("test", "tokens", job.records.parts, std::chrono::hours(1));
    const auto ended = prepare(job, progress, stop);
    if (counts != nullptr) *counts = progress.counts();
    return ended;
  }

  static std::string error_of(const Job& job) {
    try {
      run(job);
    } catch (const std::exception& error) {
      return error.what();
    }
    return {};
  }

  /// Runs the job in a process that kills itself once the source has passed so many records.
  static void run_killed(Job job, std::int64_t after_records) {
    const pid_t child = ::fork();
    if (child == 0) {
      auto seen = std::make_shared<std::atomic<std::int64_t>>(0);
      const auto make = job.records.make;
      job.records.make = [make, seen, after_records](std::int64_t part, const PutRecord& put) {
        make(part, [&](Record&& record) {
          if ((*seen)++ == after_records) ::kill(::getpid(), SIGKILL);
          put(std::move(record));
        });
      };
      error_of(job);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  }

  std::map<std::string, std::string> whole() {
    const auto ended = std::filesystem::exists(folder_ / "whole") ? Ended::kDone : run(job("whole"));
    EXPECT_EQ(ended, Ended::kDone);
    return test::bytes_of(folder_ / "whole");
  }

  inline static const std::atomic<int> kGoOn{0};
  ::test::TemporaryFolder folder_{::test::memory_folder()};
};

TEST_F(JobTest, MakesOneFileAPartAndSplit) {
  EXPECT_EQ(run(job("whole")), Ended::kDone);
  const auto train = data::format::Dataset::open(folder_ / "whole", "train");
  const auto validation = data::format::Dataset::open(folder_ / "whole", "validation");
  EXPECT_EQ(train.records() + validation.records(), (kParts - 1) * kRecordsAPart);
  EXPECT_GT(validation.records(), 5);
  EXPECT_LT(validation.records(), 40);
  EXPECT_EQ(train.description().splits.at("train").files.size(), static_cast<std::size_t>(kParts));
  EXPECT_EQ(train.description().tokenizer_kind, "bytes");
  EXPECT_EQ(train.description().source, "texts of the test");
  EXPECT_EQ(train.length(0), std::ssize(std::string("part 0, ")));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "whole/.work"));
}

TEST_F(JobTest, KilledAtAnyPartAndRepeatedMakesTheSameBytes) {
  const auto want = whole();
  for (const std::int64_t after : {0, 1, 39, 40, 77, 80, 120, 160, 199}) {
    const auto name = "killed" + std::to_string(after);
    run_killed(job(name), after);
    EXPECT_FALSE(std::filesystem::exists(folder_ / name / "data.json")) << "an unfinished folder is no data";
    Counts counts;
    EXPECT_EQ(run(job(name, 3), &counts), Ended::kDone);
    EXPECT_EQ(counts.parts_kept, after / kRecordsAPart) << "parts that were there are not made again";
    EXPECT_EQ(counts.records, (kParts - 1) * kRecordsAPart);
    EXPECT_THAT(test::differing(test::bytes_of(folder_ / name), want), IsEmpty()) << "killed after " << after;
  }
}

TEST_F(JobTest, KilledWithSeveralThreadsAndRepeatedMakesTheSameBytes) {
  const auto want = whole();
  for (const std::int64_t after : {3, 60, 150}) {
    const auto name = "killed" + std::to_string(after);
    run_killed(job(name, 4), after);
    EXPECT_EQ(run(job(name, 2)), Ended::kDone);
    EXPECT_THAT(test::differing(test::bytes_of(folder_ / name), want), IsEmpty()) << "killed after " << after;
  }
}

TEST_F(JobTest, KilledBetweenTheTwoFilesOfAPartMakesBothAgain) {
  const auto want = whole();
  run_killed(job("a"), 3 * kRecordsAPart);
  std::filesystem::remove(folder_ / "a/validation-00001.mdat");
  EXPECT_EQ(run(job("a")), Ended::kDone);
  EXPECT_THAT(test::differing(test::bytes_of(folder_ / "a"), want), IsEmpty());
}

TEST_F(JobTest, KilledAfterDataJsonOnlyTidiesUp) {
  const auto want = whole();
  std::filesystem::create_directory(folder_ / "whole/.work");
  ::test::write_file(folder_ / "whole/.work/options.json", options_of(job("whole")));
  EXPECT_EQ(run(job("whole")), Ended::kWasDone);
  EXPECT_THAT(test::differing(test::bytes_of(folder_ / "whole"), want), IsEmpty());
}

TEST_F(JobTest, AnyNumberOfThreadsMakesTheSameBytes) {
  const auto want = whole();
  for (const int jobs : {2, 4, 16}) {
    const auto name = "jobs" + std::to_string(jobs);
    EXPECT_EQ(run(job(name, jobs)), Ended::kDone);
    EXPECT_THAT(test::differing(test::bytes_of(folder_ / name), want), IsEmpty()) << jobs;
  }
}

TEST_F(JobTest, StopsAtARecordAndGoesOnLater) {
  const auto want = whole();
  std::atomic<int> stop{0};
  auto stopping = job("a");
  const auto make = stopping.records.make;
  stopping.records.make = [&](std::int64_t part, const PutRecord& put) {
    if (part == 2) stop = SIGINT;
    make(part, put);
  };
  EXPECT_EQ(run(stopping, nullptr, stop), Ended::kStopped);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a/data.json"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "a/train-00001.mdat"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a/train-00002.mdat.part")) << "nothing half-made is left";
  EXPECT_EQ(run(job("a")), Ended::kDone);
  EXPECT_THAT(test::differing(test::bytes_of(folder_ / "a"), want), IsEmpty());
}

TEST_F(JobTest, MakesADamagedOrTruncatedPartAnewWhileUnfinished) {
  const auto want = whole();
  run_killed(job("a"), 4 * kRecordsAPart);
  std::filesystem::resize_file(folder_ / "a/train-00000.mdat", 4100);
  std::fstream(folder_ / "a/train-00002.mdat", std::ios::in | std::ios::out | std::ios::binary).seekp(4100) << "?";
  Counts counts;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run(job("a"), &counts), Ended::kDone);
  const auto said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, AllOf(HasSubstr("made anew"), HasSubstr("train-00000.mdat"), HasSubstr("train-00002.mdat"),
                          Not(HasSubstr("train-00001.mdat"))));
  EXPECT_EQ(counts.parts_kept, 2);
  EXPECT_THAT(test::differing(test::bytes_of(folder_ / "a"), want), IsEmpty());
}

// A line of a source is wrong, and people mend it: the source is another one then.
TEST_F(JobTest, TakesOtherOptionsWhileNoPartIsWhole) {
  auto broken = job("a");
  broken.records.make = [](std::int64_t, const PutRecord&) { throw std::runtime_error("x.jsonl:2: is not JSON"); };
  EXPECT_THAT(error_of(broken), HasSubstr("x.jsonl:2: is not JSON"));
  auto mended = job("a");
  mended.records.description += " mended";
  EXPECT_EQ(run(mended), Ended::kDone);
}

TEST_F(JobTest, FinishedDataWithoutAFileAreNotCalledFinished) {
  whole();
  EXPECT_EQ(run(job("a")), Ended::kDone);
  EXPECT_EQ(run(job("a")), Ended::kWasDone);
  const auto file = folder_ / "a/train-00001.mdat";
  std::filesystem::resize_file(file, 100);
  EXPECT_THAT(error_of(job("a")), AllOf(HasSubstr(file.native() + ": has 100 bytes, not "),
                                        HasSubstr("; remove " + (folder_ / "a").native() + ", and the same command")));
  std::filesystem::remove(file);
  EXPECT_THAT(error_of(job("a")), HasSubstr(file.native() + ": No such file or directory; remove "));
}

TEST_F(JobTest, RefusesOtherOptionsAndNamesThem) {
  run_killed(job("a"), 50);
  auto other = job("a");
  other.splits.validation = 0.2;
  EXPECT_THAT(error_of(other),
              AllOf(HasSubstr("--to " + (folder_ / "a").native()), HasSubstr("validation was 0.1 and is 0.2"),
                    HasSubstr("name another folder"), Not(HasSubstr("seed"))));
  other = job("a");
  other.splits.seed = 4;
  EXPECT_THAT(error_of(other), HasSubstr("seed was 3 and is 4"));
  other = job("a");
  other.prefix_text = "say: ";
  EXPECT_THAT(error_of(other), HasSubstr("prefix was \"\" and is \"say: \""));
  other = job("a");
  other.records.description = "texts 2";
  EXPECT_THAT(error_of(other), HasSubstr("source was \"texts 1\" and is \"texts 2\""));
  EXPECT_EQ(error_of(job("a")), "") << "its own options still go on";
  EXPECT_THAT(error_of(other), HasSubstr("source was \"texts 1\" and is \"texts 2\"")) << "finished, too";
  EXPECT_EQ(run(job("a")), Ended::kWasDone);
}

TEST_F(JobTest, RefusesAFolderOfOtherFiles) {
  ::test::write_file(folder_ / "a/thesis.txt", "mine");
  EXPECT_THAT(error_of(job("a")), AllOf(HasSubstr("is not empty"), HasSubstr("name a new folder")));
  EXPECT_EQ(test::bytes_of(folder_ / "a").size(), 1U);
}

TEST_F(JobTest, RefusesAFolderThatAnotherProcessFills) {
  int go_on[2], ready[2];
  ASSERT_EQ(::pipe(go_on), 0);
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto slow = job("a");
    const auto make = slow.records.make;
    slow.records.make = [&](std::int64_t part, const PutRecord& put) {
      char byte = 0;
      if (part == 0 && (::write(ready[1], "r", 1) != 1 || ::read(go_on[0], &byte, 1) != 1)) ::_exit(3);
      make(part, put);
    };
    ::_exit(error_of(slow).empty() ? 0 : 1);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_THAT(error_of(job("a")), HasSubstr("another muster data prepare fills this folder now"));
  ASSERT_EQ(::write(go_on[1], "g", 1), 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the other one ends as if nobody had asked";
  for (const int fd : {go_on[0], go_on[1], ready[0], ready[1]}) ::close(fd);
}

TEST_F(JobTest, TellsTheErrorOfTheFirstPartThatHasOne) {
  auto broken = job("a", 3);
  broken.records.make = [](std::int64_t part, const PutRecord&) {
    if (part >= 1) throw std::runtime_error("file" + std::to_string(part) + ": broken; mend it");
  };
  EXPECT_THAT(error_of(broken), HasSubstr(": broken; mend it"));
  auto alone = broken;
  alone.jobs = 1;
  EXPECT_EQ(error_of(alone), "file1: broken; mend it");
  EXPECT_EQ(error_of(job("a")), "") << "a mended source goes on";
}

TEST_F(JobTest, RefusesASourceThatLeavesASplitEmpty) {
  auto none = job("a");
  none.records.make = [](std::int64_t, const PutRecord&) {};
  EXPECT_THAT(error_of(none), HasSubstr("texts of the test: holds no records"));
  auto one = job("b");
  one.records.parts = 1;
  one.records.make = [](std::int64_t, const PutRecord& put) { put({.fields = {{1, 2}}}); };
  EXPECT_THAT(error_of(one),
              AllOf(HasSubstr("1 records are too few for --validation 0.1"), HasSubstr("--validation 0")));
  one.folder = folder_ / "c";
  one.splits.validation = 0;
  EXPECT_EQ(error_of(one), "");
  EXPECT_EQ(data::format::Dataset::open(folder_ / "c", "train").records(), 1);
  EXPECT_EQ(data::format::read_description(folder_ / "c").splits.size(), 1U) << "no split for validation";
}

TEST_F(JobTest, GivesEachSplitARecordOfASmallSource) {
  for (int seed = 0; seed < 20; ++seed) {
    auto two = job("two" + std::to_string(seed));
    two.splits = {.validation = seed % 2 == 0 ? 0.001 : 0.9, .seed = static_cast<std::uint64_t>(seed)};
    two.records.parts = 1;
    two.records.make = [](std::int64_t, const PutRecord& put) {
      put({.fields = {{1}}});
      put({.fields = {{2}}});
    };
    EXPECT_EQ(error_of(two), "");
    EXPECT_EQ(data::format::Dataset::open(two.folder, "train").records(), 1);
    EXPECT_EQ(data::format::Dataset::open(two.folder, "validation").records(), 1);
  }
}

TEST(IsValidation, IsDrawnByShareAndSeed) {
  const SplitOptions options{.validation = 0.25, .seed = 7};
  int drawn = 0, otherwise = 0;
  for (std::int64_t i = 0; i < 20'000; ++i) {
    drawn += is_validation(options, i % 7, i / 7) ? 1 : 0;
    otherwise += is_validation(options, i % 7, i / 7) != is_validation({.validation = 0.25, .seed = 8}, i % 7, i / 7);
  }
  EXPECT_NEAR(drawn, 5'000, 300);
  EXPECT_GT(otherwise, 5'000) << "another seed, another split";
  EXPECT_FALSE(is_validation({.validation = 0, .seed = 1}, 0, 0));
}

}  // namespace
}  // namespace data::prepare
