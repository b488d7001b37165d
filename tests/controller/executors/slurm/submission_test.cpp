#include "controller/executors/slurm/slurm_submission.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <utility>

#include "base/durable_file.h"
#include "tests/controller/executors/slurm/fake_scheduler.h"
#include "tests/controller/service/bench.h"
#include "tests/manual_clock.h"

namespace executors::on_slurm {
namespace {

using testing::FakeScheduler;
using Submits = FakeScheduler::Submits;

constexpr const char* kScript = "#!/bin/bash\n#SBATCH --comment=muster:s:7.1\ntrue\n";
constexpr std::int64_t kNow = 1'700'000'000'000;

/// A folder, a Slurm, and controllers that come and go.
class Submitting {
 public:
  Submitter::Outcome submit(std::int64_t now = kNow) {
    set(clock, now);
    Submitter submitter(slurm, clock, [&] { return slurm.list("me"); });
    return submit(submitter);
  }
  Submitter::Outcome submit(Submitter& submitter) {
    SubmissionRecord record;
    record.comment = "muster:s:7.1";
    return submitter.submit(folder.path(), record, kScript, {{"PATH", "/the/job's"}});
  }
  static void set(common::ManualClock& clock, std::int64_t now) {
    clock.set_wall(core::Millis(now) - clock.wall().time_since_epoch());
  }
  static std::uint64_t id(const Submitter::Outcome& outcome) {
    const auto* job = std::get_if<::slurm::JobId>(&outcome);
    return job == nullptr ? 0 : job->job;
  }
  static bool later(const Submitter::Outcome& outcome) { return std::holds_alternative<LaunchLater>(outcome); }

  FakeScheduler slurm;
  common::ManualClock clock;
  service::testing::TempFolder folder;
};

/// The lock of a folder, as an sbatch holds it that has inherited it.
class Sbatch {
 public:
  explicit Sbatch(const std::filesystem::path& folder)
      : lock_(::open((folder / "submit.lock").c_str(), O_RDWR | O_CREAT, 0600)) {
    EXPECT_EQ(::flock(lock_, LOCK_EX), 0);
  }
  ~Sbatch() { end(); }
  Sbatch(const Sbatch&) = delete;
  Sbatch& operator=(const Sbatch&) = delete;
  void end() {
    if (lock_ >= 0) ::close(std::exchange(lock_, -1));
  }

 private:
  int lock_;
};

TEST(Submitter, SubmitsOnceHoweverOftenItIsAsked) {
  Submitting s;
  EXPECT_EQ(s.id(s.submit()), 1U);
  EXPECT_EQ(s.slurm.environment, (std::map<std::string, std::string>{{"PATH", "/the/job's"}}));
  EXPECT_EQ(s.slurm.inherited, 1U) << "an sbatch that outlives its caller goes on holding the lock";
  EXPECT_EQ(s.id(s.submit()), 1U);
  s.slurm.lists = false;
  EXPECT_EQ(s.id(s.submit()), 1U) << "it is written down";
  EXPECT_EQ(s.slurm.jobs.size(), 1U);
}

TEST(Submitter, ADeathBeforeSbatchIsFollowedByOneSubmission) {
  Submitting s;
  s.slurm.submits = Submits::kCrashesBefore;
  EXPECT_THROW(s.submit(), testing::Crash);
  s.slurm.submits = Submits::kTakes;
  EXPECT_TRUE(s.later(s.submit(kNow + 1000))) << "an sbatch may have been on its way";
  EXPECT_TRUE(s.later(s.submit(kNow + 5999)));
  EXPECT_EQ(s.id(s.submit(kNow + 6000)), 1U);
  EXPECT_EQ(s.slurm.jobs.size(), 1U);
}

TEST(Submitter, ADeathAfterSbatchFindsTheJobByItsComment) {
  Submitting s;
  s.slurm.submits = Submits::kCrashesAfter;
  EXPECT_THROW(s.submit(), testing::Crash);
  s.slurm.submits = Submits::kTakes;
  EXPECT_EQ(s.id(s.submit(kNow + 1)), 1U);
  EXPECT_EQ(s.slurm.jobs.size(), 1U);
}

TEST(Submitter, AnAnswerThatGotLostIsLookedForBeforeAnythingElse) {
  Submitting s;
  s.slurm.submits = Submits::kTakesSilently;
  EXPECT_TRUE(s.later(s.submit()));
  s.slurm.submits = Submits::kTakes;
  EXPECT_EQ(s.id(s.submit(kNow + 1000)), 1U);
  EXPECT_EQ(s.slurm.jobs.size(), 1U);
}

// A site's wrapper may fail after the real sbatch has succeeded.
TEST(Submitter, ASubmissionThatFailedIsLookedForBeforeAnythingElse) {
  Submitting s;
  s.slurm.submits = Submits::kTakesAndFails;
  EXPECT_TRUE(s.later(s.submit()));
  s.slurm.submits = Submits::kTakes;
  EXPECT_EQ(s.id(s.submit(kNow + 1000)), 1U);
  EXPECT_EQ(s.slurm.calls_to_submit, 1);
}

TEST(Submitter, WhatFailsAgainAndAgainIsTriedLessOftenAndSaysWhy) {
  Submitting s;
  s.slurm.submits = Submits::kFails;
  const auto why = [&](std::int64_t now) { return std::get<LaunchLater>(s.submit(now)).why; };
  EXPECT_THAT(why(kNow), ::testing::HasSubstr("I/O error writing script/environment to file"));
  std::int64_t now = kNow;
  int calls = 1;
  for (const int seconds : {10, 20, 40, 80, 160, 300, 300}) {
    now += seconds * 1000;
    EXPECT_THAT(why(now - 1), ::testing::HasSubstr("I/O error writing script/environment to file")) << seconds;
    EXPECT_EQ(s.slurm.calls_to_submit, calls) << seconds;
    EXPECT_TRUE(s.later(s.submit(now)));
    EXPECT_EQ(s.slurm.calls_to_submit, ++calls) << seconds;
  }
  s.slurm.submits = Submits::kTakes;
  EXPECT_EQ(s.id(s.submit(now + 300'000)), 1U);
  EXPECT_EQ(s.slurm.jobs.size(), 1U);
}

// A slurmctld that answers no sbatch in time is not asked for all its jobs once for each.
TEST(Submitter, ManyLostAnswersAreLookedForInOneListing) {
  FakeScheduler slurm;
  common::ManualClock clock;
  Submitter submitter(slurm, clock, [&] { return slurm.list("me"); });
  std::vector<service::testing::TempFolder> folders(3);
  const auto submit_all = [&](std::int64_t now) {
    Submitting::set(clock, now);
    std::vector<std::uint64_t> ids;
    for (std::size_t i = 0; i < folders.size(); ++i) {
      SubmissionRecord record;
      record.comment = "muster:s:" + std::to_string(i + 1) + ".1";
      const auto script = "#!/bin/bash\n#SBATCH --comment=" + record.comment + "\ntrue\n";
      ids.push_back(Submitting::id(submitter.submit(folders[i].path(), record, script, {})));
    }
    return ids;
  };
  slurm.submits = Submits::kTakesSilently;
  EXPECT_THAT(submit_all(kNow), ::testing::ElementsAre(0, 0, 0));
  EXPECT_EQ(slurm.calls_to_list, 0);
  EXPECT_THAT(submit_all(kNow + 1000), ::testing::ElementsAre(1, 2, 3));
  EXPECT_EQ(slurm.calls_to_list, 1);
}

TEST(Submitter, ARequestThatGotLostIsRepeatedAfterHalfAMinute) {
  Submitting s;
  s.slurm.submits = Submits::kLosesIt;
  EXPECT_TRUE(s.later(s.submit()));
  s.slurm.submits = Submits::kTakes;
  EXPECT_TRUE(s.later(s.submit(kNow + 29'000))) << "slurmctld may be slow";
  EXPECT_EQ(s.slurm.calls_to_submit, 1);
  EXPECT_EQ(s.id(s.submit(kNow + 31'000)), 1U);
}

TEST(Submitter, WithoutAListNothingIsSubmittedTwice) {
  Submitting s;
  s.slurm.submits = Submits::kTakesSilently;
  EXPECT_TRUE(s.later(s.submit()));
  s.slurm.submits = Submits::kTakes;
  s.slurm.lists = false;
  EXPECT_TRUE(s.later(s.submit(kNow + 3'600'000)));
  EXPECT_EQ(s.slurm.calls_to_submit, 1);
}

TEST(Submitter, ASlurmThatIsAwayIsAskedAgain) {
  Submitting s;
  s.slurm.submits = Submits::kIsAway;
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(s.later(s.submit(kNow + i)));
  s.slurm.submits = Submits::kTakes;
  EXPECT_EQ(s.id(s.submit(kNow + 10)), 1U) << "at once: nothing can have reached it";
  EXPECT_EQ(s.slurm.jobs.size(), 1U);
}

TEST(Submitter, ASlurmThatIsAwayIsAskedLessAndLessOften) {
  Submitting s;
  s.slurm.submits = Submits::kIsAway;
  Submitter submitter(s.slurm, s.clock, [&] { return s.slurm.list("me"); });
  const auto pause = [&] { return std::get<LaunchLater>(s.submit(submitter)).pause; };
  for (const int seconds : {1, 2, 4, 8, 10, 10}) EXPECT_EQ(pause(), std::chrono::seconds(seconds));
  s.slurm.submits = Submits::kRefuses;
  EXPECT_TRUE(std::holds_alternative<::slurm::Refused>(s.submit(submitter)));
  s.slurm.submits = Submits::kIsAway;
  EXPECT_EQ(pause(), std::chrono::seconds(1)) << "it has answered meanwhile";
}

// Two submissions, of which one was cancelled, may leave such jobs.
TEST(Submitter, OfSeveralJobsWithItsCommentItTakesOneThatIsNotOver) {
  Submitting s;
  s.slurm.submits = Submits::kTakesAndFails;
  EXPECT_TRUE(s.later(s.submit()));
  s.slurm.jobs.begin()->second.state.state = ::slurm::JobState::kCancelled;
  s.slurm.take(kScript);
  s.slurm.take(kScript);
  s.slurm.jobs.rbegin()->second.state.state = ::slurm::JobState::kCancelled;
  s.slurm.submits = Submits::kTakes;
  EXPECT_EQ(s.id(s.submit(kNow + 1000)), 2U);
}

TEST(Submitter, ARefusalIsTheLastWordAndLeavesNothingBehind) {
  Submitting s;
  s.slurm.submits = Submits::kRefuses;
  EXPECT_TRUE(std::holds_alternative<::slurm::Refused>(s.submit()));
  EXPECT_FALSE(read_record(s.folder.path()));
}

TEST(Submitter, AStrangersJobIsNeverTaken) {
  Submitting s;
  s.slurm.submits = Submits::kCrashesBefore;
  EXPECT_THROW(s.submit(), testing::Crash);
  s.slurm.submits = Submits::kTakes;
  s.slurm.take("#SBATCH --comment=muster:other:7.1\n");
  s.slurm.take("#SBATCH --comment=muster:s:7.10\n");
  s.slurm.take("#SBATCH --comment=muster:s:7.1\n#SBATCH --chdir=/home/ada\n");
  EXPECT_TRUE(s.later(s.submit(kNow + 1000)));
  EXPECT_EQ(s.id(s.submit(kNow + 6000)), 4U);
}

TEST(Submitter, AnSbatchThatOutlivedItsCallerIsWaitedFor) {
  Submitting s;
  Sbatch sbatch(s.folder.path());
  EXPECT_TRUE(s.later(s.submit(kNow + 60'000)));
  EXPECT_EQ(s.slurm.calls_to_submit, 0);
  s.slurm.take(kScript);
  sbatch.end();
  SubmissionRecord record;
  record.comment = "muster:s:7.1";
  record.tried_at_ms = kNow;
  write_record(s.folder.path(), record);
  EXPECT_EQ(s.id(s.submit(kNow + 60'000)), 1U);
  EXPECT_EQ(s.slurm.calls_to_submit, 0);
}

// It never ends, and its caller is long dead.
TEST(Submitter, WhatAHungSbatchHasSubmittedIsFoundWhileItHangs) {
  Submitting s;
  SubmissionRecord record;
  record.comment = "muster:s:7.1";
  record.tried_at_ms = kNow;
  write_record(s.folder.path(), record);
  Sbatch sbatch(s.folder.path());
  EXPECT_TRUE(s.later(s.submit(kNow + 10'000))) << "it may still submit";
  s.slurm.take(kScript);
  EXPECT_EQ(s.id(s.submit(kNow + 20'000)), 1U);
  EXPECT_EQ(read_record(s.folder.path())->id, (::slurm::JobId{1, {}}));
  EXPECT_EQ(s.slurm.calls_to_submit, 0);
}

// A list is asked for once for many, and may be older than what slurmctld took at last.
TEST(Submitter, OfAnSbatchThatTookLongNoOlderListSpeaks) {
  FakeScheduler slurm;
  common::ManualClock clock;
  Submitter submitter(slurm, clock, [&] { return slurm.list("me"); });
  service::testing::TempFolder folder, other;
  const auto submit = [&](const service::testing::TempFolder& where, const std::string& comment, std::int64_t now) {
    Submitting::set(clock, now);
    SubmissionRecord record;
    record.comment = comment;
    return Submitting::id(submitter.submit(where.path(), record, "#SBATCH --comment=" + comment + "\n", {}));
  };
  Sbatch sbatch(folder.path());
  SubmissionRecord record;
  record.comment = "muster:s:7.1";
  record.tried_at_ms = kNow;
  write_record(folder.path(), record);
  record.comment = "muster:s:8.1";
  write_record(other.path(), record);
  EXPECT_EQ(submit(other, "muster:s:8.1", kNow + 30'000), 0U);
  slurm.take(kScript);
  sbatch.end();
  EXPECT_EQ(submit(folder, "muster:s:7.1", kNow + 30'300), 1U);
  EXPECT_EQ(slurm.calls_to_list, 2);
  EXPECT_EQ(slurm.calls_to_submit, 0);
}

// A request that an sbatch has sent may still wait to be read.
TEST(Submitter, SlurmHasItsTimeFromTheEndOfAnSbatchOn) {
  Submitting s;
  SubmissionRecord record;
  record.comment = "muster:s:7.1";
  record.tried_at_ms = kNow;
  write_record(s.folder.path(), record);
  Sbatch sbatch(s.folder.path());
  EXPECT_TRUE(s.later(s.submit(kNow + 10'000)));
  sbatch.end();
  EXPECT_TRUE(s.later(s.submit(kNow + 11'000)));
  EXPECT_TRUE(s.later(s.submit(kNow + 15'999)));
  s.slurm.take(kScript);
  EXPECT_EQ(s.id(s.submit(kNow + 17'000)), 1U);
  EXPECT_EQ(s.slurm.calls_to_submit, 0);
}

TEST(Submitter, AClockThatWasSetBackMakesNobodyWaitForEver) {
  Submitting s;
  s.slurm.submits = Submits::kCrashesBefore;
  EXPECT_THROW(s.submit(), testing::Crash);
  s.slurm.submits = Submits::kTakes;
  EXPECT_TRUE(s.later(s.submit(kNow - 3'600'000)));
  EXPECT_EQ(s.id(s.submit(kNow - 3'600'000 + 5000)), 1U);
  EXPECT_EQ(s.slurm.jobs.size(), 1U);
}

TEST(Submitter, AnAttemptThatRanAndWasForgottenIsNotStartedAgain) {
  Submitting s;
  s.slurm.submits = Submits::kCrashesAfter;
  EXPECT_THROW(s.submit(), testing::Crash);
  s.slurm.jobs.clear();  // MinJobAge is over
  base::write_file_durably(s.folder.path() / "status-3.jsonl", "");
  s.slurm.submits = Submits::kTakes;
  EXPECT_TRUE(std::holds_alternative<::slurm::JobId>(s.submit(kNow + 3'600'000)));
  EXPECT_EQ(s.slurm.calls_to_submit, 1);
}

}  // namespace
}  // namespace executors::on_slurm
