// Goal: a person sees why a job waits (held, queued, after others), and can change it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/cli_text.h"
#include "tests/cli/fake_controller.h"

namespace test {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string write_job(const FakeController& fake) {
  const auto file = fake.folder().path() / "job.toml";
  write_file(file, "name = \"a\"\ncommand = [\"true\"]\n");
  return file;
}

/// A job that is queued on Slurm, held by ada, and waits for another job.
muster::v1::Job queued_job() {
  auto job = sample_job(1, "queued");
  job.set_executor("slurm");
  job.set_held_by("ada");
  job.set_status("held");
  job.set_reason("held by ada until released");
  job.set_action("Release it when it may start: muster release 1");
  job.add_waits_for("succeeded:12");
  job.set_time_limit_ms(4 * 3'600'000);
  job.set_scheduler_problem("unreachable since 19:50:00 UTC: timed out");
  job.mutable_sweep()->set_sweep("s1");
  (*job.mutable_sweep()->mutable_settings())["train.seed"] = "3";
  auto& attempt = *job.mutable_attempts(1);
  attempt.set_scheduler_job("4711_5");
  attempt.set_state("queued");
  attempt.set_queued_at("2026-11-20T19:50:00.000Z");
  attempt.set_started_at("2026-11-20T19:53:12.000Z");
  attempt.add_nodes("n1");
  attempt.add_nodes("n2");
  return job;
}

TEST(Hold, AndReleaseTakeSeveralJobs) {
  FakeController fake;
  fake.with([](FakeState& s) {
    for (const char* state : {"running", "succeeded", "pending"}) {
      s.jobs.push_back(sample_job(static_cast<std::int64_t>(s.jobs.size()) + 1, state));
    }
  });
  const auto held = fake.muster({"hold", "1", "2", "3", "77"});
  EXPECT_EQ(held.exit, 2) << "of the first trouble; the others are held all the same";
  EXPECT_THAT(held.err, AllOf(HasSubstr("job 2 has ended"), HasSubstr("no job 77")));
  EXPECT_THAT(held.out, HasSubstr("no further attempt starts"));
  EXPECT_EQ(fake.muster({"release", "1"}).exit, 0);
  EXPECT_EQ(Json::parse(fake.muster({"hold", "1", "--json"}).out).at("id"), 1) << "one job: one object";
  EXPECT_EQ(Json::parse(fake.muster({"hold", "1", "3", "--json"}).out).size(), 2U);
  fake.with([](FakeState& s) {
    EXPECT_THAT(s.asked, ElementsAre("hold 1 by someone", "hold 3 by someone", "release 1 by someone",
                                     "hold 1 by someone", "hold 1 by someone", "hold 3 by someone"));
  });
}

TEST(Hold, ItsJsonIsWholeThoughTheControllerIsLostMidway) {
  FakeController fake;
  fake.with([](FakeState& s) {
    for (int id = 1; id <= 3; ++id) s.jobs.push_back(sample_job(id, "running"));
    s.lost_job = 2;
  });
  const auto lost = fake.muster({"hold", "1", "2", "3", "--json"});
  EXPECT_EQ(lost.exit, 4);
  const auto rows = Json::parse(lost.out, nullptr, false);
  ASSERT_TRUE(rows.is_array()) << lost.out;
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].at("id"), 1);
}

TEST(Limit, IsADurationOrNone) {
  FakeController fake;
  fake.with([](FakeState& s) { s.jobs.push_back(sample_job(1, "running")); });
  EXPECT_EQ(fake.muster({"limit", "1", "1h30m"}).out, "job 1: time limit 1h30m\n");
  EXPECT_EQ(fake.get<std::int64_t>([](FakeState& s) { return s.jobs[0].time_limit_ms(); }), 5'400'000);
  EXPECT_EQ(fake.muster({"limit", "1", "none"}).out, "job 1: no time limit\n");
  const auto wrong = fake.muster({"limit", "1", "4 hours"});
  EXPECT_EQ(wrong.exit, 2);
  EXPECT_THAT(wrong.err, HasSubstr("time limit \"4 hours\": want a duration such as 12h"));
  EXPECT_EQ(fake.muster({"limit", "1", "10ms"}).exit, 2);
  EXPECT_EQ(fake.muster({"limit", "77", "4h"}).exit, 3);
}

TEST(Limit, IsNotSaidToBeInForceBeforeSlurmHasTakenIt) {
  FakeController fake;
  fake.with([](FakeState& s) {
    s.jobs.push_back(sample_job(1, "running"));
    s.jobs[0].set_time_limit_ms(3'600'000);
    s.limit_refusal = "the scheduler refuses a time limit of 4 h: Access/permission denied; 1 h stays in force";
    s.limit_answer_after = 3;
  });
  const auto refused = fake.muster({"limit", "1", "4h"});
  EXPECT_EQ(refused.exit, 5);
  EXPECT_EQ(refused.out, "");
  EXPECT_THAT(refused.err, HasSubstr("job 1: the scheduler refuses a time limit of 4 h: Access/permission denied; 1 h "
                                     "stays in force; Slurm lets only its operators give a running job more time"));
  EXPECT_THAT(fake.muster({"show", "1"}).out, HasSubstr("1h an attempt; the scheduler refuses"));
  EXPECT_EQ(fake.muster({"limit", "1", "5h", "--json"}).exit, 5);
}

TEST(Why, IsASentenceAnActionAndSlurmsWord) {
  FakeController fake;
  fake.with([](FakeState& s) {
    s.jobs.push_back(sample_job(1, "queued"));
    s.why.set_reason("As many of your jobs run as your QOS allows.");
    s.why.set_action("wait for one of them to end, or submit with another qos");
    s.why.set_scheduler_reason("QOSMaxJobsPerUserLimit");
    s.why.set_expected_start("2026-11-20T19:48:55.000Z");
    s.why.set_state("queued");
  });
  const auto why = fake.muster({"why", "1"});
  EXPECT_EQ(why.exit, 0);
  EXPECT_EQ(why.out,
            "job 1  queued\n"
            "  why          As many of your jobs run as your QOS allows.\n"
            "  do           wait for one of them to end, or submit with another qos\n"
            "  Slurm says   QOSMaxJobsPerUserLimit\n"
            "  starts       2026-11-20 19:48:55 UTC\n");
  EXPECT_EQ(Json::parse(fake.muster({"why", "1", "--json"}).out).at("scheduler_reason"), "QOSMaxJobsPerUserLimit");
  fake.with([](FakeState& s) { s.why.clear_expected_start(); });
  EXPECT_TRUE(Json::parse(fake.muster({"why", "1", "--json"}).out).at("expected_start").is_null());
  EXPECT_EQ(fake.muster({"why", "77"}).exit, 3);
  fake.with([](FakeState& s) { s.jobs.push_back(sample_job(2, "queued")); });
  const auto several = fake.muster({"why", "1", "77", "2"});
  EXPECT_EQ(several.exit, 3);
  EXPECT_THAT(several.err, HasSubstr("muster why: no job 77; muster list"));
  EXPECT_THAT(several.out, AllOf(HasSubstr("job 1  queued\n"), HasSubstr("\n\njob 2  queued\n")));
  EXPECT_EQ(Json::parse(fake.muster({"why", "1", "2", "--json"}).out).at(1).at("job_id"), 2);
}

TEST(Submit, HoldAfterAndExecutorStandAboveTheJobFile) {
  FakeController fake;
  const auto done = fake.muster(
      {"submit", write_job(fake), "--hold", "--after", "12", "--after", "failed:13", "--executor", "slurm"});
  EXPECT_EQ(done.exit, 0) << done.err;
  EXPECT_THAT(done.err, HasSubstr("held; start it with muster release 1"));
  fake.with([](FakeState& s) {
    EXPECT_TRUE(s.submitted[0].spec().hold());
    EXPECT_EQ(s.submitted[0].spec().executor(), "slurm");
    EXPECT_THAT(s.submitted[0].spec().after(), ElementsAre("succeeded:12", "failed:13"));
  });
  const auto wrong = fake.muster({"submit", write_job(fake), "--after", "done:12\"\n"});
  EXPECT_EQ(wrong.exit, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--after done:12\" : want a job's number such as \"12\""));
}

TEST(Submit, SaysWhatLocalProcessesDoNotHeed) {
  FakeController fake;
  const auto file = write_job(fake);
  const auto submit = [&](const std::string& executor) {
    return fake.muster({"submit", file, "--set", "slurm.output=%j.out", "--executor", executor});
  };
  EXPECT_THAT(submit("local").err, HasSubstr("muster submit: note: slurm.output has no effect on local processes"));
  EXPECT_THAT(submit("slurm").err, Not(HasSubstr("slurm.output")));
}

TEST(Submit, SaysWhichDataAreNotThereYet) {
  FakeController fake;
  const auto file = fake.folder().path() / "recipe.toml";
  write_file(file, "name = \"a\"\n[data]\nprepared = \"nothing\"\n[train]\nrecipe = \"classify\"\n");
  const std::string note = "nothing\" has no data.json on this machine";
  const auto one = fake.muster({"submit", file});
  EXPECT_EQ(one.exit, 0) << one.err;
  EXPECT_THAT(one.err, HasSubstr("muster submit: note: data.prepared = \""));
  EXPECT_THAT(one.err, HasSubstr(note));
  const auto sweep = fake.muster({"submit", file, "--sweep", "train.seed=1,2"}).err;
  EXPECT_EQ(sweep.find(note), sweep.rfind(note)) << "once for all jobs";
  EXPECT_THAT(sweep, HasSubstr(note));
  EXPECT_THAT(fake.muster({"submit", write_job(fake)}).err, Not(HasSubstr("data.json")));
}

TEST(Script, IsPrintedAsItIsAndNothingIsSubmitted) {
  FakeController fake;
  fake.with([](FakeState& s) { s.plan.add_scripts("#!/bin/bash\n#SBATCH --job-name=a\n"); });
  const auto plan = fake.muster({"submit", "--print-script", write_job(fake)});
  EXPECT_EQ(plan.exit, 0) << plan.err;
  EXPECT_EQ(plan.out, "#!/bin/bash\n#SBATCH --job-name=a\n");
  const auto sweep =
      fake.muster({"submit", "--print-script", "--sweep", "env.A=1,2", "--parallel", "1", write_job(fake)});
  EXPECT_EQ(sweep.out, plan.out) << "an array is one script";
  EXPECT_EQ(sweep.err, "");
  const auto asked = fake.get<muster::v1::PlanScriptRequest>([](FakeState& s) { return s.planned; });
  EXPECT_TRUE(asked.is_sweep());
  EXPECT_EQ(asked.parallel(), 1U);
  ASSERT_EQ(asked.specs_size(), 2);
  EXPECT_EQ(asked.specs(1).name(), "a-0001");
  fake.with([](FakeState& s) { s.plan.add_scripts("#!/bin/bash\n#SBATCH --job-name=b\n"); });
  const auto two =
      fake.muster({"submit", "--print-script", "--sweep", "env.A=1,2", "--parallel", "1", write_job(fake)});
  EXPECT_EQ(two.out, plan.out + "#!/bin/bash\n#SBATCH --job-name=b\n");
  EXPECT_EQ(two.err, "muster: the sweep's 2 jobs become 2 Slurm jobs\n");
  const auto throttled = fake.muster(
      {"submit", "--print-script", "--sweep", "env.A=1,2", "--set", "slurm.array_parallelism=1", write_job(fake)});
  EXPECT_EQ(throttled.err,
            "muster: the sweep's 2 jobs become 2 Slurm jobs; slurm.array_parallelism = 1 counts in each array by "
            "itself\n");
  fake.with([](FakeState& s) { s.plan.set_one_by_one(2); });
  const auto apart =
      fake.muster({"submit", "--print-script", "--sweep", "env.A=1,2", "--parallel", "1", write_job(fake)});
  EXPECT_THAT(apart.err,
              ::testing::StartsWith("muster: the sweep's 2 jobs go to Slurm one by one, since a limit concerns "
                                    "them (parallel); "));
  EXPECT_EQ(fake.muster({"submit", "--print-script", "--check", write_job(fake)}).exit, 2);
  EXPECT_TRUE(fake.get<bool>([](FakeState& s) { return s.submitted.empty(); }));
}

TEST(Script, CheckTellsTheStartOrExitsWith5) {
  FakeController fake;
  fake.with([](FakeState& s) {
    s.check.set_expected_start("2026-11-20T19:48:55.000Z");
    s.check.set_nodes("n[1-2]");
    s.check.set_partition("main");
  });
  EXPECT_EQ(fake.muster({"submit", "--check", write_job(fake)}).out,
            "would start at 2026-11-20 19:48:55 UTC on n[1-2] in partition main\n");
  EXPECT_EQ(Json::parse(fake.muster({"submit", "--check", "--json", write_job(fake)}).out).at("nodes"), "n[1-2]");
  fake.with([](FakeState& s) { s.check.set_refusal("invalid partition specified: low"); });
  const auto refused = fake.muster({"submit", "--check", write_job(fake)});
  EXPECT_EQ(refused.exit, 5);
  EXPECT_EQ(refused.out, "");
  EXPECT_THAT(refused.err, HasSubstr("Slurm would refuse it: invalid partition specified: low"));
  fake.with([](FakeState& s) { EXPECT_THAT(s.asked, ElementsAre("check a", "check a", "check a")); });
}

TEST(Show, TellsWhatAJobWaitsForAndWhereItRan) {
  FakeController fake;
  fake.with([](FakeState& s) { s.jobs.push_back(queued_job()); });
  const auto show = fake.muster({"show", "1"}, {{"COLUMNS", ""}}).out;
  for (const char* line :
       {"executor     slurm\n", "job 1  manpages-llama-with-a-rather-long-name  held\n",
        "reason       held by ada until released\n", "do           Release it when it may start: muster release 1\n",
        "waits for    succeeded:12\n", "time limit   4h an attempt\n", "sweep        s1, seed=3\n",
        "started      2026-11-20 19:48:56 UTC, ",
        "attempt 2    Slurm job 4711_5; queued 2026-11-20 19:50:00 UTC, waited 3m12s; started 2026-11-20 19:53:12 "
        "UTC, ",
        "; on n1, n2\n", "scheduler    unreachable since 19:50:00 UTC"}) {
    EXPECT_THAT(show, HasSubstr(line));
  }
  EXPECT_THAT(show, AllOf(HasSubstr("WAITED"), HasSubstr("3m12s  n1, n2")));
  fake.with([](FakeState& s) { s.jobs[0] = sample_job(1, "running"); });
  EXPECT_THAT(fake.muster({"show", "1"}).out, Not(HasSubstr("SLURM"))) << "a local job has none";
}

// If there are several attempts, some rows are about the whole job and some about the newest attempt.
TEST(Show, EachRowIsAboutOneThing) {
  FakeController fake;
  fake.with([](FakeState& s) {
    auto job = sample_job(1, "succeeded");
    job.set_ended_at("2026-11-20T20:48:56.000Z");
    auto& newest = *job.mutable_attempts(1);
    newest.set_started_at("2026-11-20T20:18:56.000Z");
    newest.set_ended_at("2026-11-20T20:48:56.000Z");
    s.jobs.push_back(job);
  });
  EXPECT_THAT(fake.muster({"show", "1"}, {{"COLUMNS", ""}}).out,
              AllOf(HasSubstr("  started      2026-11-20 19:48:56 UTC, as attempt 1\n"
                              "  ended        2026-11-20 20:48:56 UTC, 1h later\n"),
                    HasSubstr("  attempt 2    started 2026-11-20 20:18:56 UTC, ran 30m\n")));
}

TEST(List, NamesHeldJobsAndSlurmsOwnNumbers) {
  FakeController fake;
  fake.with([](FakeState& s) {
    s.jobs.push_back(queued_job());
    s.jobs.push_back(sample_job(2, "queued"));
  });
  const auto list = fake.muster({"list"}, {{"COLUMNS", "140"}});
  EXPECT_THAT(list.out, AllOf(HasSubstr("SLURM"), HasSubstr("4711_5"), HasSubstr("held"), HasSubstr("queued")));
  EXPECT_THAT(list.err, HasSubstr("unreachable since"));
  EXPECT_EQ(Json::parse(fake.muster({"list", "--json"}).out)[1].at("state"), "queued") << "held is no state of its own";
  EXPECT_EQ(fake.muster({"list", "--state", "queued"}).exit, 0);
}

TEST(List, MarksAHoldOnWhatRunsToo) {
  FakeController fake;
  fake.with([](FakeState& s) {
    s.jobs.push_back(sample_job(1, "running"));
    s.jobs[0].set_status("running, held");
  });
  EXPECT_THAT(fake.muster({"list"}).out, HasSubstr("  running, held  "));
}

TEST(List, HeldIsAStateToAskFor) {
  FakeController fake;
  fake.with([](FakeState& s) {
    for (const char* state : {"queued", "queued", "running", "succeeded", "pending"}) {
      s.jobs.push_back(sample_job(static_cast<std::int64_t>(s.jobs.size()) + 1, state));
    }
    for (const int held : {0, 2, 4}) s.jobs[static_cast<std::size_t>(held)].set_held_by("ada");
  });
  const auto ids = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"list", "--json"});
    std::vector<int> found;
    for (const auto& job : Json::parse(fake.muster(arguments).out)) found.push_back(job.at("id"));
    return found;
  };
  EXPECT_THAT(ids({"--state", "held"}), ElementsAre(5, 3, 1));
  EXPECT_THAT(ids({"--state", "held", "--state", "succeeded"}), ElementsAre(5, 4, 3, 1));
  EXPECT_THAT(ids({"--state", "held", "--limit", "2"}), ElementsAre(5, 3));
  fake.with([](FakeState& s) {
    EXPECT_THAT(s.list_requests[0].states(), ElementsAre("pending", "queued", "running", "stopping", "waiting"));
  });
  EXPECT_THAT(fake.muster({"list", "--help"}).out, HasSubstr("waiting,held,succeeded"));
  EXPECT_THAT(fake.muster({"completion", "bash"}).out, HasSubstr("waiting held succeeded"));
}

TEST(Doctor, TellsWhyTheControllerHasNoSlurm) {
  FakeController fake;
  fake.with([](FakeState& s) { s.no_slurm = "this controller has no Slurm: no slurm.conf; set SLURM_CONF"; });
  const auto done = fake.muster({"doctor"}, {{"COLUMNS", ""}});
  EXPECT_THAT(done.out,
              HasSubstr("note  slurm          this controller has no Slurm: no slurm.conf; set SLURM_CONF\n"));
}

TEST(Doctor, TellsExecutorsAndTheSchedulersTrouble) {
  FakeController fake;
  EXPECT_THAT(fake.muster({"doctor"}).out, HasSubstr("slurm for \"auto\"; also local"));
  fake.with([](FakeState& s) { s.scheduler_problem = "unreachable since 19:50:00 UTC: timed out"; });
  const auto done = fake.muster({"doctor", "--json"});
  EXPECT_EQ(done.exit, 1);
  EXPECT_THAT(done.out, HasSubstr("unreachable since 19:50:00 UTC: timed out; running jobs go on"));
}

}  // namespace
}  // namespace test
