#include "controller/executors/slurm/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "agent/protocol/launch.h"
#include "agent/watch/agent_files.h"
#include "base/durable_file.h"
#include "controller/executors/slurm/poller.h"
#include "tests/controller/executors/slurm/fake_scheduler.h"
#include "tests/controller/service/bench.h"
#include "tests/manual_clock.h"

namespace executors::on_slurm {
namespace {

using ::testing::ElementsAre;
using testing::FakeScheduler;
using ::testing::HasSubstr;
using Submits = FakeScheduler::Submits;

class Launching {
 public:
  Launching() { options.root = folder.path(), options.agent_program = "/opt/muster-agent", options.store_name = "s"; }

  LaunchRequest request(core::JobId job, core::AttemptNumber attempt = 1) const {
    LaunchRequest r;
    r.key = {job, attempt};
    r.job_name = "job";
    r.argv = {"/bin/true"};
    r.attempt_folder = (folder.path() / "jobs" / std::to_string(job) / ("attempt-" + std::to_string(attempt))).string();
    r.log_folder = r.attempt_folder + "/logs";
    r.working_folder = "/tmp";
    return r;
  }
  std::vector<LaunchRequest> sweep(int count, std::uint32_t array_parallelism = 0) const {
    std::vector<LaunchRequest> all;
    for (int i = 1; i <= count; ++i) {
      all.push_back(request(i));
      all.back().sweep = "sweep-1";
      all.back().slurm.array_parallelism = array_parallelism;
    }
    return all;
  }
  Launcher launcher() {
    return Launcher(slurm, clock, options, table, [this] { return slurm.list("me"); });
  }
  /// "1_0 1_1 2" as a controller that has just started is told.
  std::string launch(const std::vector<LaunchRequest>& requests) {
    auto launcher = this->launcher();
    std::string ids;
    for (const auto& answer : launcher.launch_all(requests)) {
      const auto* launched = std::get_if<core::AttemptLaunched>(&answer);
      const bool later = std::holds_alternative<LaunchLater>(answer);
      ids += (ids.empty() ? "" : " ") + (launched != nullptr ? launched->handle.substr(10)
                                         : later             ? "later"
                                                             : "failed");
    }
    return ids;
  }
  /// The record that a controller which has just started reads.
  std::optional<SubmissionRecord> record_of(const core::AttemptKey& key, const std::string& attempt_folder) const {
    return ArraySets(options.root / "slurm").record_of(key, attempt_folder);
  }
  std::string array_of(std::size_t script) const { return FakeScheduler::option(slurm.scripts.at(script), "array"); }
  std::string dependency_of(std::size_t script) const {
    return FakeScheduler::option(slurm.scripts.at(script), "dependency");
  }

  service::testing::TempFolder folder;
  FakeScheduler slurm;
  common::ManualClock clock;
  SlurmOptions options;
  AttemptTable table;
};

TEST(Launcher, ASweepIsOneArrayAndSlurmsThrottleIsTheUsersWish) {
  for (const auto& [wish, array] : std::map<std::uint32_t, std::string>{{0, "0-5"}, {2, "0-5%2"}}) {
    Launching l;
    EXPECT_EQ(l.launch(l.sweep(6, wish)), "1_0 1_1 1_2 1_3 1_4 1_5");
    EXPECT_EQ(l.array_of(0), array);
  }
}

TEST(Launcher, AJobAloneIsNoArrayAndCarriesItsAttemptInTheComment) {
  Launching l;
  EXPECT_EQ(l.launch({l.request(7, 3)}), "1");
  EXPECT_EQ(l.slurm.count("muster:s:7.3"), 1);
}

// Its environment holds the ranks' token and whatever users keep in theirs.
TEST(Launcher, WhatARankIsToldIsItsOwnersAlone) {
  Launching l;
  EXPECT_EQ(l.launch({l.request(7)}), "1");
  const std::filesystem::path file = l.request(7).attempt_folder + "/launch.json";
  EXPECT_EQ(std::filesystem::status(file).permissions(), std::filesystem::perms(0600));
}

TEST(Launcher, TasksHandOnSignalsWhereSlurmReachesThemAlone) {
  for (const auto* tracked_by : {"proctrack/pgid", "proctrack/cgroup"}) {
    Launching l;
    l.slurm.proctrack = tracked_by;
    EXPECT_EQ(l.launch({l.request(7)}), "1");
    const auto text = base::read_small_file(l.request(7).attempt_folder + "/launch.json", 1 << 20);
    EXPECT_EQ(nlohmann::json::parse(text).at("forward_signals"), std::string(tracked_by) == "proctrack/pgid");
  }
}

TEST(Launcher, ElementsThatAskSlurmForOtherThingsGoApart) {
  Launching l;
  auto requests = l.sweep(4);
  requests[1].nodes = 2;
  requests[3].nodes = 2;
  EXPECT_EQ(l.launch(requests), "1_0 2_0 1_1 2_1");
}

TEST(Launcher, WhatIsLargerThanMaxArraySizeIsSplitIntoArraysThatWaitForNobody) {
  Launching l;
  l.slurm.max_array_size = 4;  // so ids 0 to 3, of which we use three: as Slurm's own documentation counts
  EXPECT_EQ(l.launch(l.sweep(7, 2)), "1_0 1_1 1_2 2_0 2_1 2_2 3");
  for (const std::size_t script : {0, 1, 2}) EXPECT_EQ(l.dependency_of(script), "");
}

TEST(Launcher, HowLargeAnArrayMayBeIsNotGuessedWhenSlurmDoesNotSay) {
  Launching l;
  l.slurm.lists = false;
  EXPECT_EQ(l.launch(l.sweep(3, 2)), "later later later");
  EXPECT_EQ(l.slurm.calls_to_submit, 0);
  l.slurm.lists = true;
  EXPECT_EQ(l.launch(l.sweep(3, 2)), "1_0 1_1 1_2");
}

// Scripts of one job, of a sweep of two shapes, of one whose jobs go one by one, and of one beyond the largest array.
TEST(Launcher, ScriptsAreThoseThatAreHandedOver) {
  {
    Launching l;
    const auto asked = l.launcher().scripts({l.request(7)});
    EXPECT_TRUE(l.slurm.scripts.empty()) << "asking submits nothing";
    l.launch({l.request(7)});
    EXPECT_EQ(asked, l.slurm.scripts);
  }
  {
    Launching l;
    auto requests = l.sweep(3);
    requests[1].nodes = 2;
    const auto asked = l.launcher().scripts(requests);
    l.launch(requests);
    ASSERT_EQ(asked.size(), 2U);
    EXPECT_EQ(asked, l.slurm.scripts);
  }
  {
    Launching l;
    std::vector<LaunchRequest> alone{l.request(1), l.request(2), l.request(3)};
    alone[1].nodes = 2;
    const auto asked = l.launcher().scripts(alone);
    for (const auto& request : {alone[0], alone[1]}) l.launch({request});
    EXPECT_EQ(asked, l.slurm.scripts) << "one stands for all that ask for the same";
  }
  Launching l;
  l.slurm.max_array_size = 4;  // ids 0 to 3, of which three are used
  const auto asked = l.launcher().scripts(l.sweep(5, 2));
  l.launch(l.sweep(5, 2));
  ASSERT_EQ(asked.size(), 2U);
  EXPECT_EQ(asked, l.slurm.scripts);
  EXPECT_EQ(FakeScheduler::option(asked[0], "array"), "0-2%2");
}

TEST(Launcher, AnArraysLogIsInItsFolderWhateverThatIsCalled) {
  Launching l;
  l.options.root = l.folder.path() / "100%j";
  l.launch(l.sweep(2));
  EXPECT_EQ(FakeScheduler::option(l.slurm.scripts.at(0), "output"),
            l.folder.path().string() + "/100%%j/slurm/set-1.1/slurm-%a.log");
}

TEST(Launcher, AnArrayThatNoScriptCanSayFailsBeforeSlurmIsAsked) {
  Launching l;
  auto requests = l.sweep(2);
  for (auto& request : requests) request.slurm.options["partition"] = "ma\nin";
  EXPECT_EQ(l.launch(requests), "failed failed");
  EXPECT_TRUE(l.slurm.scripts.empty());
}

std::size_t files_below(const std::filesystem::path& folder) {
  const std::filesystem::recursive_directory_iterator all(folder);
  return static_cast<std::size_t>(
      std::ranges::count_if(all, [](const auto& entry) { return entry.is_regular_file(); }));
}

// Whatever waits in Slurm's queue: the array's three files and the lock of its sbatch.
TEST(Launcher, AWaitingElementCostsNoFile) {
  Launching l;
  auto requests = l.sweep(500);
  for (auto& request : requests) request.prepared = false;
  l.launch(requests);
  EXPECT_EQ(files_below(l.folder.path()), 4U);
  EXPECT_FALSE(std::filesystem::exists(l.folder.path() / "jobs"));
  const auto launches = l.folder.path() / "slurm" / "set-1.1" / "set_launch.json";
  EXPECT_EQ(std::filesystem::status(launches).permissions(), std::filesystem::perms(0600));
  EXPECT_TRUE(agent::protocol::launch_of_set(launches, 499).unprepared);
  EXPECT_THAT(l.slurm.scripts.at(0), HasSubstr("--prepare --set "));
}

// It is submitted as a job of its own, whose script prepares nothing.
TEST(Launcher, WhatGoesAloneIsPreparedWhenItIsHandedOver) {
  Launching l;
  auto request = l.sweep(1).front();
  request.prepared = false;
  request.fence_folder = (l.folder.path() / "checkpoints").string();
  request.env = {{"MUSTER_JOB_ID", "1"}, {"MUSTER_ATTEMPT", "1"}, {"MUSTER_RUN_FILE", l.folder.path() / "run.json"}};
  request.run_file = "{}\n";
  EXPECT_EQ(l.launch({request}), "1");
  EXPECT_EQ(agent::watch::read_fence(request.fence_folder), (agent::protocol::Fence{1, 1}));
  EXPECT_EQ(base::read_small_file(l.folder.path() / "run.json"), "{}\n");
  EXPECT_THAT(l.slurm.scripts.at(0), ::testing::Not(HasSubstr("--prepare")));
}

// Two arrays of one sweep, of which only the second is looked for after a restart, by its last element.
TEST(Launcher, AnAttemptIsFoundInItsArrayAfterARestart) {
  Launching l;
  auto requests = l.sweep(6);
  for (const std::size_t i : {1, 3, 5}) requests[i].nodes = 2, requests[i].ranks_per_node = 4;
  EXPECT_EQ(l.launch(requests), "1_0 2_0 1_1 2_1 1_2 2_2");
  const auto record = l.record_of({6, 1}, requests[5].attempt_folder);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->set_folder, l.folder.path().string() + "/slurm/set-2.1");
  EXPECT_EQ(record->index, 2U);
  EXPECT_EQ(record->comment, "muster:s:set.2.1");
  EXPECT_EQ(record->ranks_per_node, 4U);
  EXPECT_EQ(record->id, (::slurm::JobId{2, {}}));
  EXPECT_FALSE(l.record_of({7, 1}, l.request(7).attempt_folder));
  EXPECT_FALSE(l.record_of({6, 2}, l.request(6, 2).attempt_folder));
}

// The place of one that ran and was forgotten goes to another. It tells itself where it was.
TEST(Launcher, AnElementThatHasBegunIsNotStartedAgainThoughItsPlaceIsAnothers) {
  Launching l;
  l.slurm.submits = Submits::kTakesSilently;
  EXPECT_EQ(l.launch(l.sweep(3)), "later later later");
  l.slurm.jobs.clear();
  const std::filesystem::path folder = l.request(2).attempt_folder;
  base::make_folders(folder);
  base::write_file_durably(folder / "status.jsonl", "");
  base::write_file_durably(folder / agent::protocol::kElementFile,
                           agent::protocol::to_text({(l.folder.path() / "slurm" / "set-1.1").string(), 1}));
  l.slurm.submits = Submits::kTakes;
  l.clock.advance(core::Millis(3'600'000));
  EXPECT_EQ(l.launch({l.request(1), l.request(3)}), "2_0 2_1");
  EXPECT_EQ(l.launch({l.request(2)}), "0");
}

TEST(Launcher, AfterADeathTheSameSetIsFoundAgain) {
  for (const auto mode : {Submits::kCrashesBefore, Submits::kCrashesAfter}) {
    Launching l;
    l.slurm.submits = mode;
    EXPECT_THROW(l.launch(l.sweep(3)), testing::Crash);
    l.slurm.submits = Submits::kTakes;
    const bool taken = mode == Submits::kCrashesAfter;
    EXPECT_EQ(l.launch(l.sweep(3)), taken ? "1_0 1_1 1_2" : "later later later");
    l.clock.advance(core::Millis(6000));
    EXPECT_EQ(l.launch(l.sweep(3)), "1_0 1_1 1_2");
    EXPECT_EQ(l.slurm.scripts.size(), 1U);
  }
}

TEST(Launcher, ElementsThatComeBackOneByOneFindTheSameArray) {
  Launching l;
  l.launch(l.sweep(3));
  EXPECT_EQ(l.launch({l.sweep(3)[2]}), "1_2");
  EXPECT_EQ(l.slurm.scripts.size(), 1U);
}

// The death came before the submission was recorded: nothing was submitted, whatever the other files say.
TEST(Launcher, ASetThatWasNotFinishedIsNone) {
  Launching l;
  l.slurm.submits = Submits::kCrashesBefore;
  EXPECT_THROW(l.launch(l.sweep(4)), testing::Crash);
  std::filesystem::remove(l.folder.path() / "slurm" / "set-1.1" / "slurm.json");
  l.slurm.submits = Submits::kTakes;
  l.clock.advance(core::Millis(6000));
  EXPECT_EQ(l.launch(l.sweep(4)), "1_0 1_1 1_2 1_3");
  EXPECT_EQ(l.slurm.jobs.size(), 4U) << "each attempt once";
}

TEST(Launcher, WhatSlurmMayHaveTakenIsToldApart) {
  for (const auto& [mode, unsure] : std::map<Submits, bool>{{Submits::kLosesIt, true}, {Submits::kIsAway, false}}) {
    Launching l;
    l.slurm.submits = mode;
    auto launcher = l.launcher();
    for (const auto& requests : {l.sweep(2, 1), std::vector{l.request(9)}}) {
      for (const auto& answer : launcher.launch_all(requests)) EXPECT_EQ(std::get<LaunchLater>(answer).unsure, unsure);
    }
  }
}

TEST(Launcher, AnArrayOfWhichNobodyKnowsKeepsNoOtherBack) {
  Launching l;
  l.slurm.max_array_size = 4;
  l.slurm.submits = Submits::kLosesIt;
  const auto all = l.sweep(6);
  EXPECT_EQ(l.launch({all.begin(), all.begin() + 3}), "later later later");
  l.slurm.submits = Submits::kTakes;
  EXPECT_EQ(l.launch(all), "later later later 1_0 1_1 1_2");
  l.clock.advance(core::Millis(31'000));
  EXPECT_EQ(l.launch(all), "2_0 2_1 2_2 1_0 1_1 1_2");
}

// A person holds the second meanwhile, and gives the third more time.
TEST(Launcher, AnArrayThatSlurmHasNotTakenIsMadeAnewOfWhatComesAgain) {
  for (const auto submits : {Submits::kIsAway, Submits::kRefuses}) {
    Launching l;
    auto all = l.sweep(3);
    l.slurm.submits = submits;
    l.slurm.refusal = "Required partition not available (inactive or drain)";
    EXPECT_EQ(l.launch(all), "later later later");
    l.slurm.submits = Submits::kTakes;
    all[2].time_limit = all[0].time_limit = std::chrono::hours(4);
    EXPECT_EQ(l.launch({all[0], all[2]}), "1_0 1_1");
    EXPECT_EQ(l.array_of(0), "0-1");
    EXPECT_EQ(FakeScheduler::option(l.slurm.scripts.at(0), "time"), "240");
    EXPECT_EQ(l.launch({all[1]}), "2") << "not the place that it once had";
  }
}

TEST(Launcher, WhatIsWithdrawnIsToldWhereSlurmMayHaveIt) {
  const auto withdrawn = [](Launching& l, const LaunchRequest& request) -> std::string {
    const auto answer = l.launcher().withdraw(request);
    if (!answer) return "none";
    const auto* launched = std::get_if<core::AttemptLaunched>(&*answer);
    return launched != nullptr ? launched->handle.substr(10) : "later";
  };
  for (const bool alone : {true, false}) {
    SCOPED_TRACE(alone);
    for (const auto& [submits, at_first, at_last] :
         std::vector<std::tuple<Submits, std::string, std::string>>{{Submits::kTakesSilently, "", ""},
                                                                    {Submits::kLosesIt, "later", "none"},
                                                                    {Submits::kIsAway, "none", "none"},
                                                                    {Submits::kRefuses, "none", "none"}}) {
      Launching l;
      const auto all = l.sweep(alone ? 1 : 3);
      EXPECT_EQ(withdrawn(l, all.back()), "none") << "never tried";
      l.slurm.submits = submits;
      l.launch(all);
      const std::string taken = alone ? "1" : "1_2";
      EXPECT_EQ(withdrawn(l, all.back()), at_first.empty() ? taken : at_first);
      l.clock.advance(core::Millis(31'000));
      EXPECT_EQ(withdrawn(l, all.back()), at_last.empty() ? taken : at_last);
    }
  }
}

// A place that an element once had is another's now: what an earlier musterd wrote for each element may say otherwise.
TEST(Launcher, AnElementIsNotTakenForAnotherThatHasItsOldPlace) {
  Launching l;
  const auto all = l.sweep(4);
  l.slurm.submits = Submits::kIsAway;
  l.launch(all);
  SubmissionRecord before;
  before.comment = "muster:s:set.1.1";
  before.set_folder = (l.folder.path() / "slurm" / "set-1.1").string();
  before.index = 1;
  l.slurm.submits = Submits::kTakes;
  EXPECT_EQ(l.launch({all[0], all[2], all[3]}), "1_0 1_1 1_2");
  base::make_folders(all[1].attempt_folder);
  write_record(all[1].attempt_folder, before);
  EXPECT_EQ(l.launch({all[1]}), "2");
  EXPECT_EQ(l.launch(all), "1_0 2 1_1 1_2");
}

// With room for three in the queue: each element of an array counts.
TEST(Launcher, AnArrayTooLargeForALimitOnTheQueueGoesInParts) {
  Launching l;
  l.slurm.most_in_queue = 3;
  EXPECT_EQ(l.launch(l.sweep(8)), "1_0 1_1 2 later later later later later");
  const auto calls = l.slurm.calls_to_submit;
  l.launch(l.sweep(8));
  EXPECT_LE(l.slurm.calls_to_submit - calls, 3) << "down to one, and no further";
  l.slurm.most_in_queue = 8;
  EXPECT_EQ(l.launch(l.sweep(8)), "1_0 1_1 2 3_0 3_1 3_2 3_3 3_4");
  EXPECT_EQ(l.dependency_of(2), "");
}

TEST(Launcher, AnArrayTooLargeForWhatSlurmTakesSinceLatelyIsSplitAnew) {
  Launching l;
  auto launcher = l.launcher();
  launcher.launch_all({l.request(20), l.request(21)});
  l.slurm.max_array_size = 4;
  l.slurm.keeps_array_size = true;
  const auto later = launcher.launch_all(l.sweep(5));
  EXPECT_TRUE(std::holds_alternative<LaunchLater>(later.front()));
  const auto taken = launcher.launch_all(l.sweep(5));
  EXPECT_TRUE(std::ranges::all_of(
      taken, [](const LaunchAnswer& answer) { return std::holds_alternative<core::AttemptLaunched>(answer); }));
  EXPECT_EQ(l.array_of(l.slurm.scripts.size() - 2), "0-2");
}

// Whoever follows it must know what to take back when the node is no longer left out.
TEST(Launcher, WhatALaunchLeavesOutIsOnDisk) {
  Launching l;
  auto requests = l.sweep(2);
  requests.push_back(l.request(9));
  for (auto& request : requests) {
    request.exclude_nodes = {"node1"};
    request.slurm.options["exclude"] = "node[7-8]";
  }
  l.launch({requests[0], requests[1]});
  l.launch({requests[2]});
  for (const auto& request : requests) {
    const auto record = l.record_of(request.key, request.attempt_folder);
    ASSERT_TRUE(record);
    EXPECT_THAT(record->left_out, ::testing::ElementsAre("node1"));
    EXPECT_EQ(record->exclude, "node[7-8]");
  }
}

TEST(Launcher, AnElementThatRanAndWasForgottenIsNotStartedAgain) {
  Launching l;
  l.slurm.submits = Submits::kTakesSilently;
  EXPECT_EQ(l.launch(l.sweep(3)), "later later later");
  l.slurm.jobs.clear();  // MinJobAge is over
  const std::filesystem::path folder = l.request(2).attempt_folder;
  base::make_folders(folder);
  base::write_file_durably(folder / "status.jsonl", "");
  l.slurm.submits = Submits::kTakes;
  l.clock.advance(core::Millis(3'600'000));
  EXPECT_EQ(l.launcher().withdraw(l.request(2)).has_value(), true);
  EXPECT_EQ(l.launch(l.sweep(3)), "2_0 0 2_1");
}

TEST(Launcher, BetterANodeThatWasLostLatelyThanNone) {
  Launching l;
  l.slurm.refuses_excludes = true;
  auto alone = l.request(9);
  alone.exclude_nodes = {"node1"};
  ASSERT_EQ(l.launch({alone}), "1");
  auto requests = l.sweep(2);
  for (auto& request : requests) request.exclude_nodes = {"node1"};
  ASSERT_EQ(l.launch(requests), "2_0 2_1");
  requests.push_back(alone);
  for (const auto& request : requests) {
    EXPECT_THAT(l.record_of(request.key, request.attempt_folder)->left_out, ::testing::IsEmpty());
  }
}

TEST(Launcher, WhatSlurmWillNeverTakeFailsAndWhatItMayTakeLaterWaits) {
  Launching l;
  l.slurm.submits = Submits::kRefuses;
  EXPECT_EQ(l.launch({l.request(1)}), "failed");
  const std::string policy = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)";
  for (const auto& [refusal, answer] : std::map<std::string, std::string>{
           {policy, "later"},
           {"QOSMaxSubmitJobPerUserLimit; " + policy, "later"},
           {"AssocGrpSubmitJobsLimit; " + policy, "later"},
           {"QOSMaxWallDurationPerJobLimit; " + policy, "failed"},
           {"AssocMaxNodePerJobLimit; " + policy, "failed"},
           {"Required partition not available (inactive or drain)", "later"},
           {"Requested node configuration is not available", "failed"},
           {"Invalid account or account/partition combination specified", "failed"},
           {"Invalid qos specification", "failed"},
           {"Invalid feature specification", "failed"},
           {"Requested time limit is invalid (missing or exceeds some limit)", "failed"},
           {"Node count specification invalid", "failed"},
           {"sbatch: unrecognized option '--nonsense'", "failed"},
           {"I/O error writing script/environment to file", "later"},
           {"a word that nobody has heard of", "later"},
       }) {
    l.slurm.refusal = refusal;
    EXPECT_EQ(l.launch({l.request(1)}), answer) << refusal;
  }
}

// sbatch may have done its work before it failed, as behind a site's wrapper.
TEST(Launcher, WhatSlurmHasTakenAlthoughSbatchFailedIsFound) {
  Launching l;
  l.slurm.submits = Submits::kTakesAndFails;
  EXPECT_EQ(l.launch({l.request(9)}), "later");
  EXPECT_EQ(l.launch(l.sweep(3)), "later later later");
  EXPECT_EQ(l.launch({l.request(9)}), "1");
  EXPECT_EQ(l.launch(l.sweep(3)), "2_0 2_1 2_2");
  EXPECT_EQ(l.slurm.scripts.size(), 2U);
}

TEST(Launcher, AnArrayWhoseSbatchFailedIsHandedOverWhenItSucceeds) {
  Launching l;
  l.slurm.submits = Submits::kFails;
  EXPECT_EQ(l.launch(l.sweep(3)), "later later later");
  l.clock.advance(core::Millis(9'000));
  EXPECT_EQ(l.launch(l.sweep(3)), "later later later");
  EXPECT_EQ(l.slurm.calls_to_submit, 1);
  l.clock.advance(core::Millis(1'000));
  l.slurm.submits = Submits::kTakes;
  EXPECT_EQ(l.launch(l.sweep(3)), "1_0 1_1 1_2");
}

// Its partition may be closed for a day, or accounting be away.
TEST(Launcher, WhatSlurmHasTakenBeforeWaitsUntilSlurmTakesItAgain) {
  Launching l;
  l.slurm.submits = Submits::kRefuses;
  auto request = l.request(1);
  request.key.number = 2;
  EXPECT_EQ(l.launch({request}), "later");
}

TEST(Launcher, KnowsItsOwnCommentsAndNoOthers) {
  const auto key_of = [](const std::string& comment) {
    const auto name = read_comment("s", comment);
    return name && !name->is_array ? std::optional(name->first) : std::nullopt;
  };
  EXPECT_EQ(key_of("muster:s:7.12"), (core::AttemptKey{7, 12}));
  for (const char* strange : {"", "muster:t:7.1", "muster:s:7", "muster:s:7.", "muster:s:7.1 ", "muster:s:set.7.1",
                              "muster:s:x.1", "muster:s:7.1.2", "a stranger's"}) {
    EXPECT_FALSE(key_of(strange)) << strange;
  }
}

}  // namespace
}  // namespace executors::on_slurm
