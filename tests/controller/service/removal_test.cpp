// Goal: a removed job is gone for everybody but its history, its files are deleted whatever crashes, and no other job
// is hurt. Method: the real controller without threads; store in memory and in SQLite; real folders; a crash before and
// after each write.
#include <gmock/gmock.h>

#include <fstream>

#include "tests/controller/service/bench.h"

namespace service::testing {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class Removal : public ::testing::TestWithParam<StoreKind> {
 protected:
  fs::path folder_of(core::JobId id) const { return bench.folder() / "jobs" / std::to_string(id); }
  /// A job that has ended and left files and metrics.
  core::JobId ended(const std::string& name, int code = 0) {
    const auto id = bench.submit(command_request(name));
    bench.executor().end({id, 1}, 0, {code, 0});
    bench.tick();
    fs::create_directories(folder_of(id) / "checkpoints" / "step-1");
    std::ofstream(folder_of(id) / "checkpoints" / "step-1" / "weights") << std::string(100'000, 'w');
    const store::MetricRow row{.job = id, .attempt = 1, .step = 1};
    bench.store().add_metrics({&row, 1});
    return id;
  }
  muster::v1::RemoveResponse remove(const std::vector<core::JobId>& ids, bool dry_run = false) {
    muster::v1::RemoveRequest request;
    request.mutable_job_ids()->Assign(ids.begin(), ids.end());
    request.set_user("ada");
    request.set_dry_run(dry_run);
    const auto outcome = bench.controller().remove(request);
    EXPECT_TRUE(outcome.ok()) << outcome.refusal().text;
    return outcome.ok() ? outcome.value() : muster::v1::RemoveResponse{};
  }
  std::string refusal(core::JobId id) {
    const auto answer = remove({id});
    EXPECT_EQ(answer.removed_size(), 0);
    return answer.refused_size() == 1 ? answer.refused(0).why() : "";
  }
  Bench bench{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Stores, Removal, ::testing::Values(StoreKind::kMemory, StoreKind::kSqlite), store_name);

TEST_P(Removal, ARemovedJobIsGoneForAllButItsHistory) {
  const auto id = ended("a"), other = ended("b");
  const auto plan = remove({id}, true);
  ASSERT_EQ(plan.removed_size(), 1);
  EXPECT_GE(plan.removed(0).bytes(), 100'000);
  EXPECT_EQ(bench.state(id), "succeeded") << "nothing has happened yet";

  const auto answer = remove({id});
  ASSERT_EQ(answer.removed_size(), 1);
  EXPECT_EQ(answer.removed(0).name(), "mine");
  EXPECT_EQ(answer.removed(0).state(), "succeeded");
  EXPECT_GE(answer.removed(0).bytes(), 100'000);
  bench.tick();
  EXPECT_FALSE(fs::exists(folder_of(id)));
  EXPECT_TRUE(bench.store().metrics(id, 0, 0, 0, 10).empty());
  EXPECT_TRUE(bench.store().pending_actions().empty());
  for (int restarted = 0; restarted < 2; ++restarted) {
    EXPECT_EQ(bench.controller().get(id).refusal().text, "job 1 was removed by ada");
    EXPECT_EQ(bench.controller().get(id).refusal().kind, common::Refusal::Kind::kNotFound);
    EXPECT_EQ(bench.controller().why(id).refusal().kind, common::Refusal::Kind::kNotFound);
    EXPECT_FALSE(bench.controller().spec(id).ok()) << "it may hold secrets";
    EXPECT_EQ(bench.controller().set_time_limit(id, 1h, "ada").refusal().kind, common::Refusal::Kind::kNotFound);
    EXPECT_EQ(bench.controller().requeue(id, "ada").refusal().kind, common::Refusal::Kind::kNotFound);
    EXPECT_EQ(bench.controller().log_path(id, 1, 0), "");
    EXPECT_EQ(bench.controller().list({}).jobs_size(), 1);
    EXPECT_EQ(bench.controller().list({}).total(), 1);
    EXPECT_EQ(bench.event_types(id).back(), "job_removed");
    bench.restart();
  }
  EXPECT_EQ(bench.state(other), "succeeded");
  EXPECT_TRUE(fs::exists(folder_of(other) / "checkpoints" / "step-1" / "weights"));
  EXPECT_EQ(bench.submit(command_request("c")), 3) << "numbers are not given again";
  EXPECT_EQ(bench.submit(command_request("a")), id) << "the same request is the same job still";
}

TEST_P(Removal, WhatIsNotOverOrIsNeededIsRefused) {
  const auto needed = ended("a"), running = bench.submit(command_request("b"));
  auto after = command_request("c");
  after.mutable_spec()->add_after("ended:" + std::to_string(running));
  after.mutable_spec()->add_after("succeeded:" + std::to_string(needed));
  const auto waiting = bench.submit(after);
  EXPECT_EQ(refusal(running), "job 2 is running: only a job that has ended can be removed; cancel it first");
  EXPECT_EQ(refusal(needed), "job 1 is needed by job 3, which has not ended: remove it after that one");
  EXPECT_EQ(refusal(99), "there is no job 99");
  bench.controller().cancel(waiting, "ada");
  bench.tick();

  auto evaluation = command_request("d");
  evaluation.mutable_spec()->mutable_checkpoint()->set_folder(folder_of(needed) / "checkpoints");
  const auto reader = bench.submit(evaluation);
  EXPECT_THAT(refusal(needed), HasSubstr("is needed by job 4"));
  bench.executor().end({reader, 1}, 0, {0, 0});
  bench.tick();
  const auto answer = remove({reader, needed});
  EXPECT_EQ(answer.removed_size(), 2);
  EXPECT_EQ(answer.removed(1).kept_checkpoint_folder(), folder_of(needed) / "checkpoints");
  EXPECT_EQ(refusal(needed), "job 1 was removed by ada");
}

TEST_P(Removal, AFolderThatAnOpenJobSavesIntoIsKnownByAnyName) {
  const auto needed = ended("a");
  const TempFolder elsewhere;
  fs::create_directory_symlink(bench.folder(), elsewhere.path() / "data");
  auto evaluation = command_request("b");
  evaluation.mutable_spec()->mutable_checkpoint()->set_folder(elsewhere.path() / "data" / "jobs" / "1" / "checkpoints");
  bench.submit(evaluation);
  EXPECT_THAT(refusal(needed), HasSubstr("is needed by job 2"));
  EXPECT_TRUE(fs::exists(folder_of(needed)));
}

TEST_P(Removal, NobodySavesIntoTheFolderOfARemovedJob) {
  const auto id = ended("a");
  const TempFolder elsewhere;
  fs::create_directory_symlink(folder_of(id), elsewhere.path() / "one");
  remove({id});
  for (const auto& folder : {folder_of(id) / "checkpoints", elsewhere.path() / "one" / "new"}) {
    auto request = command_request("b");
    request.mutable_spec()->mutable_checkpoint()->set_folder(folder);
    const auto outcome = bench.controller().submit(request);
    ASSERT_FALSE(outcome.ok()) << folder;
    EXPECT_THAT(outcome.refusal().text,
                HasSubstr("it is in the folder of job 1, which is deleted: job 1 was removed by "
                          "ada; choose another one"));
  }
}

TEST_P(Removal, LateMetricsOfARemovedJobAreNotKept) {
  const auto id = ended("a");
  remove({id});
  bench.tick();
  auto late = Bench::beat({id, 1}, 0, 2);
  late.add_metrics()->set_step(2);
  const auto answer = bench.send(late);
  ASSERT_TRUE(answer.ok()) << answer.refusal().text;
  EXPECT_EQ(answer.value().metrics_accepted(), 1U) << "or they are told for ever";
  bench.tick();
  EXPECT_TRUE(bench.store().metrics(id, 0, 0, 0, 10).empty());
}

TEST_P(Removal, ASweepThatIsAskedForAgainHasTheJobsThatAreLeft) {
  const auto ids = bench.submit_sweep("s", 3, 0);
  for (const auto id : ids) bench.executor().end({id, 1}, 0, {0, 0});
  bench.tick();
  remove({1});
  EXPECT_THAT(bench.submit_sweep("s", 3, 0), ::testing::ElementsAre(2, 3));
  remove({2, 3});
  const auto again = bench.controller().submit_sweep(sweep_request("s", 3, 0));
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.refusal().text,
            "request_id: it was used for sweep s1, whose jobs are all removed; choose another one to submit it again");
}

TEST_P(Removal, SoManyAtOnceAreRefusedAsAWhole) {
  const auto id = ended("a");
  muster::v1::RemoveRequest request;
  for (core::JobId job = id; job <= 1001; ++job) request.add_job_ids(job);
  const auto outcome = bench.controller().remove(request);
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.refusal().kind, common::Refusal::Kind::kLimit);
  EXPECT_EQ(outcome.refusal().text, "job_ids: 1001 jobs; at most 1000 at once, remove them in parts");
  EXPECT_EQ(bench.state(id), "succeeded");
}

TEST_P(Removal, NobodyWaitsForARemovedJob) {
  const auto id = ended("a");
  remove({id});
  auto after = command_request("b");
  after.mutable_spec()->add_after("succeeded:" + std::to_string(id));
  const auto outcome = bench.controller().submit(after);
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.refusal().text, HasSubstr("job 1 was removed by ada, and its files with it; leave it out"));
}

TEST_P(Removal, WhateverCrashesWhatIsRecordedAsRemovedIsDeletedInTheEnd) {
  for (int at = 0; at < 12; ++at) {
    const auto id = ended("job-" + std::to_string(at));
    bench.point.steps = 0;
    bench.point.at = at;
    bool crashed = false;
    try {
      remove({id});
      bench.tick();
    } catch (const Crash&) {
      crashed = true;
    }
    bench.point.at = -1;
    bench.restart();
    bench.tick();
    const bool recorded = !bench.controller().get(id).ok();
    EXPECT_EQ(fs::exists(folder_of(id)), !recorded) << "crash at " << at;
    EXPECT_EQ(bench.store().metrics(id, 0, 0, 0, 10).empty(), recorded) << "crash at " << at;
    EXPECT_TRUE(bench.store().pending_actions().empty());
    if (!crashed) {
      EXPECT_TRUE(recorded);
      EXPECT_GE(at, 6) << "the removal's own writes were all tried";
      return;
    }
  }
  FAIL() << "there are more writes than this test tries";
}

TEST_P(Removal, AFolderThatCanNotBeDeletedNowIsDeletedLater) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may delete everything";
  const auto id = ended("a");
  fs::permissions(folder_of(id) / "checkpoints", fs::perms::owner_read | fs::perms::owner_exec);
  remove({id});
  bench.tick();
  EXPECT_TRUE(fs::exists(folder_of(id)));
  fs::permissions(folder_of(id) / "checkpoints", fs::perms::owner_all);
  bench.tick();
  EXPECT_FALSE(fs::exists(folder_of(id)));
}

TEST_P(Removal, OfASweepWhatItsArraysSharedGoesWithItsLastJob) {
  const auto ids = bench.submit_sweep("s", 2, 0);
  ASSERT_EQ(ids.size(), 2U);
  for (const auto id : ids) bench.executor().end({id, 1}, 0, {0, 0});
  bench.tick();
  const auto slurm = bench.folder() / "slurm";
  for (const char* name : {"set-1.1", "set-7.1"}) fs::create_directories(slurm / name / "begun-0");
  std::ofstream(slurm / "sweep-s1") << "x";
  remove({ids[0]});
  bench.tick();
  EXPECT_TRUE(fs::exists(slurm / "set-1.1"));
  remove({ids[1]});
  bench.tick();
  EXPECT_FALSE(fs::exists(slurm / "set-1.1"));
  EXPECT_FALSE(fs::exists(slurm / "sweep-s1"));
  EXPECT_TRUE(fs::exists(slurm / "set-7.1")) << "another's";
}

}  // namespace
}  // namespace service::testing
