#include "tests/controller/executors/slurm/scheduler_contract.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <thread>

#include "slurm/host_list.h"

namespace executors::on_slurm::testing {

using namespace std::chrono_literals;
using ::slurm::JobId;
using ::slurm::JobPhase;
using ::slurm::JobState;
using ::testing::IsEmpty;

namespace {
const JobId kNobody{999'999, {}};
}  // namespace

::slurm::BatchScript SchedulerContract::job(const std::string& comment) const {
  ::slurm::BatchScript script;
  script.launch.command = world_->command();
  script.output = {.path = "/dev/null", .literal = true};
  script.comment = comment;
  script.options["time"] = "10";
  return script;
}

JobId SchedulerContract::submit(const ::slurm::BatchScript& job) {
  EXPECT_THAT(::slurm::problems(job), IsEmpty());
  const auto answer = slurm().submit(::slurm::render(job));
  EXPECT_TRUE(std::holds_alternative<JobId>(answer));
  return std::holds_alternative<JobId>(answer) ? std::get<JobId>(answer) : JobId{};
}

std::optional<::slurm::ListedJob> SchedulerContract::look(const JobId& id) {
  const auto jobs = slurm().list({});
  EXPECT_TRUE(jobs) << jobs.why();
  if (!jobs) return std::nullopt;
  for (const auto& each : *jobs) {
    if (each.id == id) return each;
  }
  return std::nullopt;
}

bool SchedulerContract::reaches(const JobId& id, JobState state) {
  for (const auto limit = std::chrono::steady_clock::now() + 60s; std::chrono::steady_clock::now() < limit;) {
    const auto now = look(id);
    if (now && now->state.state == state) return true;
    std::this_thread::sleep_for(20ms);
  }
  return false;
}

JobId SchedulerContract::running(const std::string& comment) {
  const auto id = submit(job(comment));
  world().start(id);
  EXPECT_TRUE(reaches(id, JobState::kRunning));
  return id;
}

TEST_P(SchedulerContract, AJobIsListedWithItsCommentFromItsSubmissionToItsExitCode) {
  const auto id = submit(job("muster:s:7.1"));
  const auto waiting = look(id);
  ASSERT_TRUE(waiting) << "at once";
  EXPECT_EQ(waiting->comment, "muster:s:7.1");
  EXPECT_EQ(waiting->restarts, 0U);
  EXPECT_FALSE(waiting->exit);
  world().start(id);
  ASSERT_TRUE(reaches(id, JobState::kRunning));
  const auto hosts = ::slurm::expand_hosts(look(id)->node_list);
  ASSERT_TRUE(std::holds_alternative<std::vector<std::string>>(hosts));
  EXPECT_EQ(std::get<std::vector<std::string>>(hosts).size(), 1U);
  world().finish(7);
  ASSERT_TRUE(reaches(id, JobState::kFailed));
  EXPECT_EQ(look(id)->exit, (::slurm::ExitStatus{7, 0}));
  EXPECT_EQ(look(id)->comment, "muster:s:7.1") << "it is still listed";
}

// Listed in a row they take more than the 64 characters after which scontrol cuts such a list.
TEST_P(SchedulerContract, EveryElementOfAnArrayIsFoundByItsNumber) {
  auto array = job("muster:s:set.9.1");
  array.options["hold"] = std::nullopt;
  ::slurm::ArrayTasks tasks;
  for (std::uint32_t i = 0; i < 90; ++i) tasks.tasks.push_back(i);
  array.array = tasks;
  const auto id = submit(array);
  std::vector<JobId> odd;
  for (std::uint32_t i = 1; i < 90; i += 2) odd.push_back({id.job, i});
  EXPECT_TRUE(slurm().cancel(odd));
  const auto found = slurm().find(id.job);
  ASSERT_TRUE(found) << found.why();
  for (std::uint32_t i = 0; i < 90; i += 2) {
    const JobId element{id.job, i};
    EXPECT_TRUE(std::ranges::any_of(*found, [&](const auto& job) { return job.id == element; })) << i;
  }
  EXPECT_TRUE(slurm().cancel({{id.job, std::nullopt}}));
}

TEST_P(SchedulerContract, ACleanEndIsCompletedWithZero) {
  const auto id = running("a");
  world().finish(0);
  ASSERT_TRUE(reaches(id, JobState::kCompleted));
  EXPECT_EQ(look(id)->exit, (::slurm::ExitStatus{0, 0}));
}

TEST_P(SchedulerContract, AHeldJobHasNoPriorityUntilItIsReleased) {
  auto later = job("a");
  later.options["begin"] = "now+1hour";
  const auto id = submit(later);
  EXPECT_GT(look(id)->priority, 0U);
  EXPECT_TRUE(slurm().hold(id));
  EXPECT_EQ(look(id)->priority, 0U);
  EXPECT_EQ(look(id)->reason, "JobHeldUser");
  EXPECT_EQ(look(id)->state.state, JobState::kPending);
  EXPECT_TRUE(slurm().release(id));
  EXPECT_GT(look(id)->priority, 0U);
  EXPECT_TRUE(slurm().cancel({id}));
  EXPECT_TRUE(reaches(id, JobState::kCancelled)) << "one that waits, too";
}

TEST_P(SchedulerContract, ACancelEndsAJobAndTwoEndItNoMore) {
  const auto id = running("a"), other = running("b");
  EXPECT_TRUE(slurm().cancel({id}));
  ASSERT_TRUE(reaches(id, JobState::kCancelled));
  EXPECT_TRUE(slurm().cancel({id, kNobody})) << "nothing left to do is done";
  EXPECT_EQ(look(other)->state.state, JobState::kRunning);
}

TEST_P(SchedulerContract, AnArraysElementsAreJobsOfTheirOwnWithOneComment) {
  auto array = job("muster:s:set.7.1");
  array.array = ::slurm::ArrayTasks{{0, 1, 2, 3}, 0};
  const auto id = submit(array);
  EXPECT_FALSE(look({id.job, {}})) << "the array itself is none";
  for (std::uint32_t i = 0; i < 4; ++i) {
    const auto element = look({id.job, i});
    ASSERT_TRUE(element) << i;
    EXPECT_EQ(element->comment, "muster:s:set.7.1");
    world().start({id.job, i});
    ASSERT_TRUE(reaches({id.job, i}, JobState::kRunning)) << i;
  }
  EXPECT_TRUE(slurm().cancel({{id.job, 0}, {id.job, 1}, {id.job, 3}}));
  for (const std::uint32_t i : {0U, 1U, 3U}) EXPECT_TRUE(reaches({id.job, i}, JobState::kCancelled)) << i;
  EXPECT_EQ(look({id.job, 2})->state.state, JobState::kRunning);
  world().finish(0);
  EXPECT_TRUE(reaches({id.job, 2}, JobState::kCompleted));
}

TEST_P(SchedulerContract, ANewTimeLimitIsListed) {
  const auto id = running("a");
  EXPECT_EQ(look(id)->time_limit, 10min);
  EXPECT_TRUE(slurm().update_time_limit(id, 5min));
  EXPECT_EQ(look(id)->time_limit, 5min);
  EXPECT_TRUE(slurm().update_time_limit(id, 0min));
  EXPECT_EQ(look(id)->time_limit, std::nullopt) << "none";
}

TEST_P(SchedulerContract, NodesThatAWaitingJobIsToGetNoneOfMayChange) {
  const auto id = submit(job("a"));
  EXPECT_TRUE(slurm().hold(id));
  EXPECT_TRUE(slurm().exclude(id, {"node1"}));
  EXPECT_TRUE(slurm().exclude(id, {})) << "none";
}

TEST_P(SchedulerContract, ARequeuedJobKeepsItsNumberAndCountsItsRestarts) {
  auto again = job("a");
  again.options["requeue"] = std::nullopt;
  const auto id = submit(again);
  world().start(id);
  ASSERT_TRUE(reaches(id, JobState::kRunning));
  world().requeue(id);
  ASSERT_TRUE(reaches(id, JobState::kPending));
  EXPECT_EQ(look(id)->restarts, 1U);
  EXPECT_EQ(look(id)->comment, "a");
}

TEST_P(SchedulerContract, AJobIsFoundByItsNumberWithWhatItWasSubmittedWith) {
  auto alone = job("muster:s:7.1");
  alone.name = "two words=x";
  alone.chdir = "/tmp";
  const auto id = submit(alone);
  const auto found = slurm().find(id.job);
  ASSERT_TRUE(found) << found.why();
  ASSERT_EQ(found->size(), 1U);
  EXPECT_EQ(found->front().id, id);
  EXPECT_EQ(found->front().state.state, JobState::kPending);
  EXPECT_EQ(found->front().comment, "muster:s:7.1");
  EXPECT_EQ(found->front().work_folder, "/tmp");
  EXPECT_EQ(found->front().submitted, look(id)->submitted);
  world().start(id);
  ASSERT_TRUE(reaches(id, JobState::kRunning));
  EXPECT_EQ(slurm().find(id.job)->front().state.state, JobState::kRunning);
  EXPECT_EQ(slurm().find(id.job)->front().node_list, look(id)->node_list);

  auto array = job("muster:s:set.8.1");
  array.array = ::slurm::ArrayTasks{{0, 1, 2, 3}, 1};
  const auto of_array = submit(array);
  world().start({of_array.job, 0});
  ASSERT_TRUE(reaches({of_array.job, 0}, JobState::kRunning));
  std::map<JobId, JobState> states;
  const auto elements = slurm().find(of_array.job);
  for (const auto& element : *elements) states[element.id] = element.state.state;
  ASSERT_EQ(states.size(), 4U);
  EXPECT_EQ((states[{of_array.job, 0}]), JobState::kRunning);
  for (const std::uint32_t i : {1U, 2U, 3U}) EXPECT_EQ((states[{of_array.job, i}]), JobState::kPending) << i;
}

TEST_P(SchedulerContract, OfANumberThatNobodyHasNothingCanBeAsked) {
  EXPECT_FALSE(look(kNobody));
  ASSERT_TRUE(slurm().find(kNobody.job));
  EXPECT_TRUE(slurm().find(kNobody.job)->empty());
  EXPECT_TRUE(slurm().hold(kNobody).refused());
  EXPECT_TRUE(slurm().release(kNobody).refused());
  EXPECT_TRUE(slurm().update_time_limit(kNobody, 5min).refused());
  EXPECT_TRUE(slurm().exclude(kNobody, {}).refused());
  EXPECT_TRUE(slurm().history({1}).refused()) << "there is no accounting here";
}

// A job on which an array depends may be forgotten by the time the array is handed over.
TEST_P(SchedulerContract, ADependencyOnAJobThatIsOverHoldsNobodyBack) {
  auto after = job("a");
  after.options["dependency"] = "afterany:" + std::to_string(kNobody.job);
  const auto id = submit(after);
  world().start(id);
  EXPECT_TRUE(reaches(id, JobState::kRunning));
}

}  // namespace executors::on_slurm::testing
