#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <set>

#include "slurm/host_list.h"
#include "slurm/pending_reason.h"
#include "slurm/scheduler.h"
#include "slurm/slurm_job.h"
#include "tests/slurm/reason_names.h"

namespace slurm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(JobIds, AreReadAndPrintedAsSlurmDoes) {
  EXPECT_EQ(parse_job_id("123"), (JobId{123, {}}));
  EXPECT_EQ(parse_job_id("123_4"), (JobId{123, 4}));
  EXPECT_EQ(to_string({123, {}}), "123");
  EXPECT_EQ(to_string({123, 0}), "123_0");
  for (const auto* odd :
       {"", "0", "-1", "+1", "1_", "_1", "1_-2", "1 ", "1.batch", "1+0", "1_2_3", "99999999999999999999"}) {
    EXPECT_FALSE(parse_job_id(odd)) << odd;
  }
}

TEST(JobIds, TheRestOfAnArrayIsUnderstood) {
  const auto listed = parse_listed_id("12_[0-2,7,10-20:5%4]");
  ASSERT_TRUE(listed);
  const auto& rest = std::get<ArrayRemainder>(*listed);
  EXPECT_EQ(rest.job, 12U);
  EXPECT_THAT(rest.tasks, ElementsAre(0, 1, 2, 7, 10, 15, 20));
  EXPECT_EQ(rest.parallelism, 4U);
  EXPECT_FALSE(rest.cut_short);
  EXPECT_TRUE(std::get<ArrayRemainder>(*parse_listed_id("12_[0-5,...]")).cut_short);
  EXPECT_EQ(std::get<JobId>(*parse_listed_id("12_3")), (JobId{12, 3}));
  for (const auto* odd : {"12_[]", "12_[1-]", "12_[3-1]", "12_[a]", "12_[1%]", "x_[1]", "12_[1", "12_[0-4294967295]"}) {
    EXPECT_FALSE(parse_listed_id(odd)) << odd;
  }
}

TEST(JobIds, TasksBecomeRanges) {
  EXPECT_EQ(compress_tasks({3, 1, 2, 7, 7, 0}), "0-3,7");
  EXPECT_EQ(compress_tasks({5}), "5");
  EXPECT_EQ(compress_tasks({}), "");
}

std::vector<std::string> hosts(std::string_view text) {
  auto expanded = expand_hosts(text);
  if (const auto* problem = std::get_if<HostListProblem>(&expanded)) ADD_FAILURE() << text << ": " << problem->what;
  return std::holds_alternative<HostListProblem>(expanded) ? std::vector<std::string>{}
                                                           : std::get<std::vector<std::string>>(expanded);
}

TEST(HostList, IsUnfoldedInOrder) {
  EXPECT_THAT(hosts("node[1-3,07-09],gpu-a"),
              ElementsAre("node1", "node2", "node3", "node07", "node08", "node09", "gpu-a"));
  EXPECT_THAT(hosts("r[1-2]n[08-09]x"), ElementsAre("r1n08x", "r1n09x", "r2n08x", "r2n09x"));
  EXPECT_THAT(hosts("a"), ElementsAre("a"));
  EXPECT_THAT(hosts("n[9-11]"), ElementsAre("n9", "n10", "n11"));
  EXPECT_THAT(hosts(""), IsEmpty());
  EXPECT_THAT(hosts("(null)"), IsEmpty());
  EXPECT_THAT(hosts("None assigned"), IsEmpty());
}

// The cases of submitit's own tests for SLURM_JOB_NODELIST.
TEST(HostList, SubmititsExamples) {
  EXPECT_THAT(hosts("compute-b24-1"), ElementsAre("compute-b24-1"));
  EXPECT_THAT(hosts("compute-b24-[1-3,5,9],compute-b25-[4,8]"),
              ElementsAre("compute-b24-1", "compute-b24-2", "compute-b24-3", "compute-b24-5", "compute-b24-9",
                          "compute-b25-4", "compute-b25-8"));
  EXPECT_THAT(hosts("a[7-12]b"), ElementsAre("a7b", "a8b", "a9b", "a10b", "a11b", "a12b"));
  EXPECT_THAT(hosts("a1,b2"), ElementsAre("a1", "b2"));
}

TEST(HostList, AProblemNamesItsPlace) {
  const std::vector<std::pair<const char*, std::size_t>> odd = {
      {"a,,b", 3},   {"a[1-2", 2}, {"a1]", 3}, {"a[3-1]", 3},        {"a[1,x]", 5},
      {"a[]", 2},    {"a b", 2},   {"ab,", 3}, {"n[0-99999999]", 3}, {"n[1-300]m[1-300]", 10},
      {"n[1--2]", 3}};
  for (const auto& [text, column] : odd) {
    const auto result = expand_hosts(text);
    ASSERT_TRUE(std::holds_alternative<HostListProblem>(result)) << text;
    EXPECT_EQ(std::get<HostListProblem>(result).column, column)
        << text << ": " << std::get<HostListProblem>(result).what;
  }
  EXPECT_THAT(hosts("n[0-65535]"), SizeIs(kMaxHosts));
}

TEST(HostList, FoldingAndUnfoldingGiveTheSameNames) {
  std::mt19937 random(7);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const std::vector<std::string> prefixes = {"n", "node", "gpu-a", "r1n", "x0y", "123456789012345678901", ""};
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> names;
    for (int i = pick(12); i >= 0; --i) {
      auto name = prefixes[static_cast<std::size_t>(pick(7))];
      const auto digits = std::to_string(pick(2) == 0 ? pick(12) : 95 + pick(12));
      if (pick(3) == 0) name += std::string(static_cast<std::size_t>(pick(3)), '0');
      if (name.empty() || pick(8) != 0) name += digits;
      names.push_back(name);
      if (pick(2) == 0)
        names.push_back(name.substr(0, name.size() - digits.size()) + std::to_string(std::stoi(digits) + 1));
    }
    EXPECT_EQ(hosts(compress_hosts(names)), names) << compress_hosts(names);
  }
}

TEST(HostList, NeighboursShareABracket) {
  EXPECT_EQ(compress_hosts({"node1", "node2", "node3", "node7", "gpu-a"}), "node[1-3,7],gpu-a");
  EXPECT_EQ(compress_hosts({"n08", "n09", "n10"}), "n[08-10]");
  EXPECT_EQ(compress_hosts({"n1"}), "n1");
  EXPECT_EQ(compress_hosts({}), "");
}

TEST(JobStates, EveryNameOfSlurm2205IsKnownInBothSpellings) {
  const std::vector<std::pair<const char*, const char*>> names = {
      {"PENDING", "PD"},    {"RUNNING", "R"},      {"SUSPENDED", "S"},      {"COMPLETED", "CD"},
      {"CANCELLED", "CA"},  {"FAILED", "F"},       {"TIMEOUT", "TO"},       {"NODE_FAIL", "NF"},
      {"PREEMPTED", "PR"},  {"BOOT_FAIL", "BF"},   {"DEADLINE", "DL"},      {"OUT_OF_MEMORY", "OOM"},
      {"COMPLETING", "CG"}, {"STAGE_OUT", "SO"},   {"CONFIGURING", "CF"},   {"RESIZING", "RS"},
      {"REQUEUED", "RQ"},   {"REQUEUE_FED", "RF"}, {"REQUEUE_HOLD", "RH"},  {"SPECIAL_EXIT", "SE"},
      {"STOPPED", "ST"},    {"REVOKED", "RV"},     {"RESV_DEL_HOLD", "RD"}, {"SIGNALING", "SI"}};
  std::set<JobState> seen;
  for (const auto& [full, compact] : names) {
    const auto state = parse_job_state(full).state;
    EXPECT_NE(state, JobState::kUnknown) << full;
    EXPECT_EQ(parse_job_state(compact).state, state);
    EXPECT_EQ(name(state), full);
    EXPECT_NE(classify(state), JobPhase::kUnknown) << full;
    seen.insert(state);
  }
  EXPECT_THAT(seen, SizeIs(24));
}

TEST(JobStates, AnUnknownOneKeepsItsTextAndIsNoReasonToAct) {
  const auto state = parse_job_state("LAUNCH_FAILED");
  EXPECT_EQ(state.state, JobState::kUnknown);
  EXPECT_EQ(state.text, "LAUNCH_FAILED");
  EXPECT_EQ(classify(state.state), JobPhase::kUnknown);
  EXPECT_EQ(parse_job_state("UNKNOWN").state, JobState::kUnknown);
  EXPECT_EQ(parse_job_state("").state, JobState::kUnknown);
}

TEST(JobStates, SacctsSpellingsAreUnderstood) {
  const auto cancelled = parse_job_state("CANCELLED by 1000");
  EXPECT_EQ(cancelled.state, JobState::kCancelled);
  EXPECT_EQ(cancelled.by, "1000");
  EXPECT_EQ(parse_job_state("CANCELLED+").state, JobState::kCancelled);
  EXPECT_EQ(parse_job_state("OUT_OF_ME+").state, JobState::kOutOfMemory);
  EXPECT_EQ(parse_job_state("R+").state, JobState::kRunning);
}

TEST(JobStates, PhasesFollowWhatTheStateMeans) {
  using enum JobState;
  for (const auto state : {kPending, kRequeued, kRequeueHold, kSpecialExit})
    EXPECT_EQ(classify(state), JobPhase::kQueued);
  for (const auto state : {kRunning, kConfiguring, kSuspended, kStopped, kResizing, kSignaling, kStageOut}) {
    EXPECT_EQ(classify(state), JobPhase::kActive);
  }
  EXPECT_EQ(classify(kCompleting), JobPhase::kEnding);
  for (const auto state : {kCompleted, kCancelled, kFailed, kTimeout, kNodeFail, kPreempted, kBootFail, kDeadline,
                           kOutOfMemory, kRevoked}) {
    EXPECT_EQ(classify(state), JobPhase::kEnded);
  }
}

TEST(Reasons, EachOneOfSlurm2205HasItsSentenceAndItsAction) {
  EXPECT_THAT(reason_names(), SizeIs(197));  // job_reason_string() has 199 names, two of them twice
  for (const auto& reason : reason_names()) {
    const auto text = explain_reason(reason);
    EXPECT_TRUE(text.known) << reason;
    EXPECT_THAT(text.sentence, ::testing::EndsWith(".")) << reason;
    EXPECT_THAT(text.action, ::testing::EndsWith(".")) << reason;
    EXPECT_EQ(text.sentence.find("  "), std::string::npos) << reason;
  }
}

TEST(Reasons, TheUsualOnesSayWhatItIsAndWhatToDo) {
  const auto says = [](const char* reason, const char* sentence, const char* action) {
    const auto text = explain_reason(reason);
    EXPECT_THAT(text.sentence, HasSubstr(sentence)) << reason;
    EXPECT_THAT(text.action, HasSubstr(action)) << reason;
  };
  says("Resources", "the nodes it needs are busy", "fewer nodes");
  says("Priority", "higher priority are first", "less time");
  says("Dependency", "waits for another job", "cancel this one");
  says("JobHeldUser", "owner holds it in Slurm", "scontrol release JOBID.");
  says("JobHeldAdmin", "An admin holds", "Ask the admin");
  says("BeginTime", "may not start before", "scontrol update JobId=JOBID StartTime=now.");
  says("PartitionTimeLimit", "time limit is longer than the partition allows", "Ask for less time");
  says("PartitionNodeLimit", "more or fewer nodes than the partition has or allows", "within the partition's limits");
  says("PartitionDown", "partition is down", "another partition");
  says("ReqNodeNotAvail", "down, drained or reserved", "other nodes");
  says("Reservation", "its reservation", "without the reservation");
  says("Licenses", "a license that others use", "ask for fewer");
  says("BadConstraints", "No node has what the job asks for", "Change its features");
  says("InvalidAccount", "account does not exist", "account that you belong to");
  says("InvalidQOS", "QOS does not exist", "a QOS that your account may use");
  says("JobArrayTaskLimit", "As many elements", "scontrol update JobId=ARRAYID ArrayTaskThrottle=NUMBER.");
  says("DependencyNeverSatisfied", "will never start", "without that dependency");
}

TEST(Reasons, WhatWaitsIsNamedInTheCommandsAndSoIsWhatItWaitsFor) {
  ListedJob job;
  job.id = {12, 3};
  job.reason = "JobHeldUser";
  EXPECT_EQ(explain_waiting(job).action, "Release it: scontrol release 12_3.");
  job.reason = "JobArrayTaskLimit";
  EXPECT_THAT(explain_waiting(job).action, HasSubstr("scontrol update JobId=12 ArrayTaskThrottle=NUMBER."));
  job.reason = "Dependency";
  job.dependency = "afterany:11_*(unfulfilled)";
  EXPECT_EQ(explain_waiting(job).sentence, "The job waits for another Slurm job: afterany:11_*(unfulfilled).");
}

TEST(Reasons, LimitsSayWhoseAndOfWhat) {
  EXPECT_EQ(explain_reason("QOSMaxJobsPerUserLimit").sentence,
            "You already have as many or as much running jobs as the job's QOS allows one user.");
  EXPECT_THAT(explain_reason("AssocMaxWallDurationPerJobLimit").sentence,
              HasSubstr("time limit is longer than your account"));
  EXPECT_THAT(explain_reason("AssocGrpGRESRunMinutes").sentence, HasSubstr("minutes of GPUs"));
  EXPECT_THAT(explain_reason("QOSMinGRES").sentence, HasSubstr("less GPUs or other generic resources"));
  EXPECT_THAT(explain_reason("MaxMemoryPerAccount").sentence, HasSubstr("Your account"));
}

TEST(Reasons, TextsOfSlurmctldAreUnderstood) {
  EXPECT_THAT(explain_reason("ReqNodeNotAvail, UnavailableNodes:node[3-4]").sentence, HasSubstr("node[3-4]"));
  EXPECT_TRUE(
      explain_reason("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions")
          .known);
  EXPECT_TRUE(explain_reason("launch failed requeued held").known);
  EXPECT_TRUE(explain_reason("(Resources)").known);
  EXPECT_TRUE(explain_reason("").known);
}

TEST(Reasons, ARunThatSlurmCouldNotStartIsHeldForItAndForNothingElse) {
  for (const auto* reason : {"launch failed requeued held", "launch_failed_requeued_held"}) {
    EXPECT_EQ(understand_reason(reason), Reason::kLaunchFailure) << reason;
  }
  for (const auto* reason : {"None", "", "JobHeldAdmin", "job requeued in held state", "BeginTime"}) {
    EXPECT_EQ(understand_reason(reason), Reason::kOther) << reason;
  }
  EXPECT_EQ(understand_reason("TimeLimit"), Reason::kTimeLimit);
  EXPECT_EQ(understand_reason("NodeDown"), Reason::kNodeDown);
}

TEST(Reasons, AnUnknownOneIsQuoted) {
  const auto text = explain_reason("MoonPhase");
  EXPECT_FALSE(text.known);
  EXPECT_THAT(text.sentence, HasSubstr("\"MoonPhase\""));
  EXPECT_FALSE(text.action.empty());
}

}  // namespace
}  // namespace slurm
