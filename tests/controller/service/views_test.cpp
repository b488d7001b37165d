// Goal: what people see is what is, named and dated; what ranks get to read is exact.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "agent/environment/rank_variables.h"
#include "base/durable_file.h"
#include "controller/actions/launches.h"
#include "controller/jobs/specs.h"
#include "controller/service/views.h"
#include "proto/json/proto_json.h"
#include "spec/jobfile/spec.h"
#include "tests/controller/service/bench.h"
#include "tests/recipe_values.h"

#include "controller/common/clock.h"
#include "spec/jobfile/job_keys.h"

namespace service::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(Times, AreRfc3339WithMilliseconds) {
  EXPECT_EQ(common::time_text(core::Time(core::Millis(1'700'000'000'123))), "2023-11-14T22:13:20.123Z");
  EXPECT_EQ(common::time_text(core::Time(core::Millis(0))), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(common::time_text(std::optional<core::Time>{}), "");
}

TEST(RunFile, HoldsExactlyWhatMusterWorkerReads) {
  auto spec = recipe_request("a").spec();
  jobfile::fill_defaults(spec);
  const auto json = actions::run_file(spec, 7, common::DataFolder("/data"));
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  EXPECT_EQ(keys,
            (std::vector<std::string>{"format", "name", "recipe", "model", "data", "fsdp", "train", "checkpoint"}));
  EXPECT_EQ(json["format"], 1);
  EXPECT_EQ(json["recipe"], "causal_lm");
  EXPECT_FALSE(json["model"].contains("vocab_size")) << "absent, so the data decide";
  EXPECT_EQ(json["data"]["cache_folder"], "/data/cache");
  EXPECT_EQ(json["checkpoint"]["folder"], "/data/jobs/7/checkpoints");
  EXPECT_EQ(json["train"]["steps"], 100);
  EXPECT_EQ(json["fsdp"]["prefetch"], true);
}

TEST(RunFile, KeepsTheFoldersThatTheJobNames) {
  auto spec = recipe_request("a").spec();
  spec.mutable_checkpoint()->set_folder("/elsewhere/ckpt");
  test::put(spec, "data.cache_folder", "/elsewhere/cache");
  const auto json = actions::run_file(spec, 7, common::DataFolder("/data"));
  EXPECT_EQ(json["data"]["cache_folder"], "/elsewhere/cache");
  EXPECT_EQ(json["checkpoint"]["folder"], "/elsewhere/ckpt");
}

TEST(LaunchRequests, CarryTheUsersEnvironmentAndOurs) {
  auto spec = command_request("a", 3).spec();
  (*spec.mutable_env())["MASTER_PORT"] = "1234";
  (*spec.mutable_env())["MUSTER_RANK_TOKEN"] = "forged";
  jobfile::fill_defaults(spec);
  const actions::LaunchSettings settings{common::DataFolder("/data"), "/bin/muster-worker", "127.0.0.1:7600", "secret"};
  const auto request = actions::launch_request(spec, {5, 2}, settings);
  EXPECT_EQ(request.argv, (std::vector<std::string>{"python3", "train.py"}));
  EXPECT_EQ(request.ranks_per_node, 3U);
  EXPECT_EQ(request.log_folder, "/data/jobs/5/attempt-2/logs");
  EXPECT_THAT(request.env, Contains(Pair("MASTER_PORT", "1234")));
  EXPECT_THAT(request.env, Contains(Pair("MUSTER_RANK_TOKEN", common::rank_token("secret", 5, 2))));
  EXPECT_THAT(request.env, Contains(Pair("MUSTER_CONTROLLER", "127.0.0.1:7600")));
  EXPECT_THAT(request.env, Contains(Pair("MUSTER_CONTROLLER_FILE", "/data/musterd.json")));
  EXPECT_THAT(request.env, Contains(Pair("MUSTER_JOB_ID", "5")));
  EXPECT_THAT(request.env, Contains(Pair("MUSTER_ATTEMPT", "2")));
  EXPECT_THAT(request.env, Contains(Pair("MUSTER_CHECKPOINT_FOLDER", "/data/jobs/5/checkpoints")));
  EXPECT_FALSE(request.env.contains("MUSTER_RUN_FILE"));
}

TEST(LaunchRequests, SetNothingThatAJobFileMayStillSet) {
  for (auto spec : {command_request("a").spec(), recipe_request("a").spec()}) {
    jobfile::fill_defaults(spec);
    const actions::LaunchSettings settings{common::DataFolder("/data"), "/bin/muster-worker", "127.0.0.1:7600",
                                           "secret"};
    const auto request = actions::launch_request(spec, {5, 2}, settings);
    EXPECT_GE(request.env.size(), 5U);
    for (const auto& [name, value] : request.env) {
      EXPECT_TRUE(name.starts_with("TORCHELASTIC_") || jobfile::is_set_by_muster(spec, name)) << name;
    }
  }
}

TEST(LaunchRequests, BeginWithALoginEnvironmentAndWhatTheJobTookFromItsSubmitter) {
  auto spec = command_request("a").spec();
  (*spec.mutable_submitted_env())["PATH"] = "/venv/bin";
  (*spec.mutable_submitted_env())["VIRTUAL_ENV"] = "/venv";
  const actions::LaunchSettings settings{common::DataFolder("/data"), "/bin/muster-worker", "127.0.0.1:7600", "secret"};
  const auto base = actions::launch_request(spec, {5, 2}, settings).base_env;
  EXPECT_THAT(base, Contains(Pair("PATH", "/venv/bin")));
  EXPECT_THAT(base, Contains(Pair("VIRTUAL_ENV", "/venv")));
  EXPECT_EQ(base.size(), agent::environment::login_environment().size() + 1);
}

TEST(LaunchRequests, ACommandIsToldAboutItsRunAsByTorchrunUnlessItsJobFileSaysOtherwise) {
  auto spec = command_request("a").spec();
  (*spec.mutable_env())["TORCHELASTIC_RUN_ID"] = "mine";
  jobfile::fill_defaults(spec);
  const actions::LaunchSettings settings{common::DataFolder("/data"), "/bin/muster-worker", "127.0.0.1:7600", "secret"};
  const auto request = actions::launch_request(spec, {5, 2}, settings);
  EXPECT_THAT(request.env, Contains(Pair("TORCHELASTIC_RUN_ID", "mine")));
  EXPECT_THAT(request.env, Contains(Pair("TORCHELASTIC_RESTART_COUNT", "1")));
  EXPECT_THAT(request.env, Contains(Pair("TORCHELASTIC_MAX_RESTARTS", "3")));
  EXPECT_THAT(request.base_env, Contains(Pair("PYTHONUNBUFFERED", "1")));
}

TEST(LaunchRequests, SayOfSlurmWhatTheJobFileSays) {
  muster::v1::JobSpec spec;
  executors::SlurmWishes to;
  for (const auto& key : jobfile::job_keys()) {
    if (!key.name.starts_with("slurm.") || key.sbatch.empty()) continue;
    const std::string option(key.sbatch);
    if (key.kind == spec::Kind::kFlag) {
      jobfile::set(spec, key, true);
      to.options[option] = std::nullopt;
    } else if (key.kind == spec::Kind::kSize) {
      jobfile::set(spec, key, std::int64_t{(3 << 20) + 1});
      to.options[option] = "4M";
    } else if (key.kind == spec::Kind::kWhole) {
      jobfile::set(spec, key, std::int64_t{-4});
      to.options[option] = "-4";
    } else {
      jobfile::set(spec, key, "value of " + option);
      to.options[option] = "value of " + option;
    }
  }
  EXPECT_THAT(to.options, ::testing::SizeIs(16));
  jobfile::set_slurm_text(spec, "output", "o");
  jobfile::set_slurm_text(spec, "health_check", "h");
  auto& from = *spec.mutable_slurm();
  from.add_setup("s"), from.add_teardown("d"), from.add_srun_args("--x");
  (*from.mutable_options())["hint"] = "nomultithread";
  (*from.mutable_options())["contiguous"] = "";
  const auto said = actions::slurm_wishes(spec);
  EXPECT_THAT(said.health_check, ::testing::EndsWith("\nh")) << "behind what tells whose check it was";
  to.health_check = said.health_check;
  to.output = "o", to.setup = {"s"}, to.teardown = {"d"}, to.srun_args = {"--x"};
  to.options["hint"] = "nomultithread";
  to.options["contiguous"] = std::nullopt;
  EXPECT_TRUE(said == to);
}

TEST(Submissions, KeepEachBudgetOfTheJobFile) {
  muster::v1::JobSpec spec;
  auto& from = *spec.mutable_requeue();
  from.set_max_failed(1), from.set_max_rank_silent(2), from.set_max_rank_hung(3), from.set_max_preempted(4);
  from.set_max_timed_out(5), from.set_max_node_failed(6), from.set_max_out_of_memory(7);
  from.set_max_controller_lost(8), from.set_max_same_error(9);
  const auto policy = jobs::requeue_policy(spec);
  EXPECT_EQ(policy.max_failed, 1U);
  EXPECT_EQ(policy.max_rank_silent, 2U);
  EXPECT_EQ(policy.max_rank_hung, 3U);
  EXPECT_EQ(policy.max_preempted, 4U);
  EXPECT_EQ(policy.max_timed_out, 5U);
  EXPECT_EQ(policy.max_node_failed, 6U);
  EXPECT_EQ(policy.max_out_of_memory, 7U);
  EXPECT_EQ(policy.max_controller_lost, 8U);
  EXPECT_EQ(policy.max_same_error, 9U);
}

TEST(LaunchRequests, OfARecipeRunTheWorkerOnItsRunFile) {
  Bench bench;
  const auto id = bench.submit(recipe_request("a"));
  const auto request = bench.machine->get({id, 1}).request;
  ASSERT_EQ(request.argv.size(), 3U);
  EXPECT_EQ(request.argv[1], "--run-file");
  EXPECT_EQ(request.env.at("MUSTER_RUN_FILE"), request.argv[2]);
  const auto json = nlohmann::json::parse(base::read_small_file(request.argv[2]));
  EXPECT_EQ(json["checkpoint"]["folder"], (bench.folder() / "jobs" / std::to_string(id) / "checkpoints").string());
}

TEST(LaunchRequests, ThatFindNoWritableCheckpointFolderEndWithItsName) {
  Bench bench;
  auto request = recipe_request("a");
  request.mutable_spec()->mutable_checkpoint()->set_folder("/proc/checkpoints");
  const auto id = bench.submit(request);
  EXPECT_EQ(bench.machine->starts.size(), 0U);
  EXPECT_THAT(bench.attempt(id, 1).reason(), HasSubstr("/proc/checkpoints"));
}

TEST(LaunchRequests, OfACommandLeaveItsOwnCheckpointFolderAlone) {
  Bench bench;
  auto request = command_request("a");
  const auto mine = bench.folder() / "mine";
  request.mutable_spec()->mutable_checkpoint()->set_folder(mine.string());
  const auto id = bench.submit(request);
  EXPECT_EQ(bench.state(id), "running");
  EXPECT_FALSE(std::filesystem::exists(mine));
  EXPECT_EQ(bench.machine->get({id, 1}).request.env.at("MUSTER_CHECKPOINT_FOLDER"), mine.string());
}

TEST(Views, AJobShowsItsHistoryRanksAndSpec) {
  Bench bench;
  const auto id = bench.submit(recipe_request("a"));
  auto beat = Bench::beat({id, 1}, 0, 3);
  auto& m = *beat.add_metrics();
  m.set_step(3);
  add_value(m, "loss", 2.5);
  add_value(m, "tokens_per_s", 1000);
  bench.send(beat);
  const auto job = bench.job(id);
  EXPECT_EQ(job.name(), "llama");
  EXPECT_EQ(job.kind(), "recipe");
  EXPECT_EQ(job.user(), "ada");
  EXPECT_EQ(job.step(), 3);
  EXPECT_EQ(job.steps_total(), 100);
  EXPECT_EQ(job.loss(), 2.5);
  EXPECT_EQ(job.tokens_per_s(), 1000);
  EXPECT_FALSE(job.started_at().empty());
  EXPECT_TRUE(job.ended_at().empty());
  EXPECT_EQ(job.ranks_size(), 2);
  EXPECT_EQ(test::whole(job.spec(), "train.steps"), 100U);
  EXPECT_EQ(job.attempts(0).reason_started(), "submitted");
  EXPECT_EQ(bench.controller().log_path(id, 1, 1),
            (bench.folder() / "jobs" / std::to_string(id) / "attempt-1" / "logs" / "rank-1.log").string());
  EXPECT_EQ(bench.controller().log_path(id, 2, 0), "");
  EXPECT_EQ(bench.controller().log_path(id, 1, 2), "");
  EXPECT_EQ(bench.controller().log_path(99, 1, 0), "");
}

TEST(Views, SeriesOfAnyNameAreShownWithWhatTheirRanksDeclare) {
  Bench bench;
  const auto id = bench.submit(recipe_request("a"));
  for (core::RankNumber rank : {0U, 1U}) {
    auto beat = Bench::beat({id, 1}, rank, 3);
    auto& declared = *beat.add_series();
    declared.set_name("correct");
    declared.set_unit("answers");
    declared.set_better("higher");
    declared.set_over_ranks("sum");
    beat.add_series()->set_name("no name");
    auto& second = *beat.add_metrics();
    second.set_step(2);
    add_value(second, "validation/loss", 2.25);
    auto& third = *beat.add_metrics();
    third.set_step(3);
    third.set_step_ms(rank == 0 ? 5 : 7);
    add_value(third, "correct", rank == 0 ? 40 : 2);
    add_value(third, "loss", 2.5);
    add_value(third, "no name", 1);
    EXPECT_EQ(bench.send(beat).value().metrics_accepted(), 2U);
  }
  for (int round = 0; round < 2; ++round) {
    const auto job = bench.job(id);
    ASSERT_EQ(job.series_size(), 3);
    EXPECT_EQ(job.series(0).name(), "correct");
    EXPECT_EQ(job.series(0).unit(), "answers");
    EXPECT_EQ(job.series(0).better(), "higher");
    EXPECT_EQ(job.series(0).over_ranks(), "sum");
    EXPECT_EQ(job.series(0).value(), 42);
    EXPECT_EQ(job.series(1).name(), "validation/loss");
    EXPECT_EQ(job.series(1).quantity(), "loss");
    EXPECT_TRUE(job.series(1).held_out());
    EXPECT_EQ(job.series(1).step(), 2);
    EXPECT_EQ(job.series(1).value(), 2.25);
    EXPECT_EQ(job.loss(), 2.5) << "the training's, not the validation's";
    const auto rows = bench.controller().metrics(id, 0, 0, 0, 10);
    ASSERT_EQ(rows.size(), 2U);
    EXPECT_EQ(rows[1].series().at("correct"), 42);
    EXPECT_EQ(rows[1].step_ms(), 7);
    EXPECT_FALSE(rows[1].has_memory_bytes()) << "nobody measured it";
    EXPECT_FALSE(rows[0].has_loss());
    bench.restart();
  }
  muster::v1::ListRequest all;
  const auto row = bench.controller().list(all).jobs(0);
  EXPECT_EQ(row.loss(), 2.5);
  EXPECT_EQ(row.series_size(), 0) << "lists are short";
}

TEST(Views, AListIsNewestFirstFilteredAndPaged) {
  Bench bench;
  for (int i = 0; i < 5; ++i) bench.submit(command_request(std::to_string(i)));
  bench.executor().end({2, 1}, 0, {0, 0});
  bench.tick();
  muster::v1::ListRequest request;
  request.set_limit(2);
  auto page = bench.controller().list(request);
  EXPECT_EQ(page.total(), 5);
  ASSERT_EQ(page.jobs_size(), 2);
  EXPECT_EQ(page.jobs(0).id(), 5);
  EXPECT_EQ(page.jobs(0).attempts_size(), 1);
  EXPECT_FALSE(page.jobs(0).has_spec());
  request.set_before_id(4);
  EXPECT_EQ(bench.controller().list(request).jobs(0).id(), 3);
  muster::v1::ListRequest done;
  done.add_states("succeeded");
  page = bench.controller().list(done);
  EXPECT_EQ(page.total(), 1);
  EXPECT_EQ(page.jobs(0).id(), 2);
  muster::v1::ListRequest nonsense;
  nonsense.add_states("sleeping");
  EXPECT_EQ(bench.controller().list(nonsense).jobs_size(), 0);
}

TEST(Views, EventsTellTheStoryInOrder) {
  Bench bench;
  const auto id = bench.submit(command_request("a"));
  bench.executor().end({id, 1}, 0, {0, 0});
  bench.tick();
  const auto events = bench.controller().events(id, 0, 100);
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].type(), "job_submitted");
  EXPECT_EQ(events[1].type(), "attempt_launched");
  EXPECT_EQ(events[2].type(), "rank_exited");
  EXPECT_EQ(events[2].job_state(), "succeeded");
  EXPECT_EQ(events[2].version(), 3);
  EXPECT_FALSE(events[2].payload().empty());
  EXPECT_EQ(bench.controller().events(id, events[1].id(), 100).size(), 1U);
  EXPECT_EQ(bench.controller().last_event_id(), events[2].id());
}

TEST(Submissions, ThatAreWrongAreRefusedByFieldAndStoreNothing) {
  Bench bench;
  auto request = recipe_request("a");
  test::put(*request.mutable_spec(), "train.batch_size", 7);
  test::put(*request.mutable_spec(), "train.micro_batch_size", 2);
  auto refused = bench.controller().submit(request);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.refusal().kind, common::Refusal::Kind::kInvalid);
  EXPECT_THAT(refused.refusal().text, HasSubstr("train.batch_size"));
  request = recipe_request(std::string(65, 'x'));
  EXPECT_FALSE(bench.controller().submit(request).ok());
  EXPECT_EQ(bench.controller().list({}).total(), 0);
  EXPECT_EQ(bench.controller().get(1).refusal().kind, common::Refusal::Kind::kNotFound);
  EXPECT_EQ(bench.controller().cancel(1, "ada").refusal().kind, common::Refusal::Kind::kNotFound);
}

TEST(Submissions, WithoutARequestIdAreEachTheirOwn) {
  Bench bench;
  EXPECT_NE(bench.submit(command_request("")), bench.submit(command_request("")));
}

TEST(Submissions, OfALongUserNameAreCutToTextThatCanBeSent) {
  Bench bench;
  auto request = command_request("a");
  request.set_user(std::string(63, 'x') + "\xc3\xa9");
  EXPECT_EQ(bench.job(bench.submit(request)).user(), std::string(63, 'x') + "?");
}

TEST(Status, TellsWhatItIs) {
  Bench bench;
  bench.submit(command_request("a"));
  const auto status = bench.controller().status();
  EXPECT_EQ(status.version(), "test");
  EXPECT_EQ(status.executor(), "fake");
  EXPECT_EQ(status.jobs_total(), 1);
  EXPECT_EQ(status.jobs_running(), 1);
  EXPECT_EQ(status.events_total(), 2);
  EXPECT_EQ(status.dashboard_url(), "http://127.0.0.1:7601/");
  EXPECT_GT(status.data_free_bytes(), 0);
  EXPECT_EQ(status.store_problem(), "");
  EXPECT_TRUE(bench.controller().is_people_token("people"));
  EXPECT_FALSE(bench.controller().is_people_token("peoplf"));
  EXPECT_FALSE(bench.controller().is_people_token(""));
}

TEST(MetricsThatCameTooLate, AreANoteOfTheirJob) {
  using std::chrono_literals::operator""h;
  Bench bench;
  const auto id = bench.submit(command_request("a", 2));
  const auto row = [&](core::RankNumber rank) {
    return store::MetricRow{.job = id, .attempt = 1, .rank = rank, .step = 1, .values = {{"loss", 1}}};
  };
  const auto notes = [&] {
    const auto job = bench.job(id);
    return std::vector<std::string>(job.notes().begin(), job.notes().end());
  };
  const auto first = row(0), late = row(1);
  bench.store().add_metrics({&first, 1}, {});
  bench.store().age_metrics({-2h, 24h}, 100);  // as if it had been stored long ago
  bench.store().add_metrics({&late, 1}, {});
  bench.executor().end_all({id, 1}, {0, 0});
  bench.tick();
  EXPECT_THAT(notes(), ::testing::Not(Contains(HasSubstr("in no curve")))) << "nobody asks this of a young job";
  bench.clock.advance(25h);
  EXPECT_THAT(notes(), Contains(HasSubstr("1 row of its metrics is in no curve")));
}

}  // namespace
}  // namespace service::testing
