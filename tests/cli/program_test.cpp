// Goal: exit codes, stdout, stderr, JSON and tables are what people and scripts rely on.
// Method: the real program with a real gRPC server that answers as the test says.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "cli/cli_command.h"
#include "cli/cli_text.h"
#include "cli/follow.h"
#include "cli/submit.h"
#include "proto/wire/version.h"
#include "tests/cli/fake_controller.h"
#include "tests/places.h"

namespace test {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string write_job(const FakeController& fake, const std::string& text) {
  const auto file = fake.folder().path() / "job.toml";
  write_file(file, text);
  return file;
}
constexpr const char* kJob = "name = \"a\"\ncommand = [\"true\"]\n";

void add_job(FakeController& fake, const std::string& state) {
  fake.with([&](FakeState& s) { s.jobs.push_back(sample_job(static_cast<std::int64_t>(s.jobs.size()) + 1, state)); });
}

std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, cli::width_of(line));
  return widest;
}

TEST(Program, InAFolderThatWasRemovedSaysSo) {
  FakeController fake;
  const auto folder = fake.folder().path() / "gone";
  const auto program = ::test::built_program("muster");
  for (const auto* command : {"list", "init program", "submit -- true"}) {
    const auto done = run({"/bin/sh", "-c",
                           "mkdir '" + folder.string() + "' && cd '" + folder.string() + "' && rmdir '" +
                               folder.string() + "' && exec '" + program + "' " + command},
                          fake.environment(), 20s);
    EXPECT_EQ(done.exit, 2) << command;
    EXPECT_THAT(done.err, HasSubstr("this shell's folder was removed: cd to another one, and try again")) << command;
  }
}

TEST(Versions, AreToldAndAControllerThatIsTooOldIsRefusedByName) {
  FakeController fake;
  EXPECT_EQ(fake.muster({"list"}).exit, 0) << "one that tells nothing is taken";
  EXPECT_EQ(fake.get<int>([](FakeState& s) { return s.spoken; }), proto::kWireVersion);
  for (const auto version : {proto::kOldestWireVersion, proto::kWireVersion, proto::kWireVersion + 1}) {
    fake.with([&](FakeState& s) { s.wire_version = version; });
    EXPECT_EQ(fake.muster({"list"}).exit, 0) << version;
  }
  fake.with([](FakeState& s) { s.wire_version = proto::kOldestWireVersion - 1; });
  const auto old = fake.muster({"list"});
  EXPECT_EQ(old.exit, 4);
  EXPECT_THAT(old.err,
              HasSubstr("is too old for this muster: it speaks version 0 of the wire, and muster understands 1 "
                        "and newer; upgrade musterd, or use the muster of its version"));
}

TEST(Versions, OfACallThatTheControllerDoesNotKnowItIsSaidWhichProgramIsOlder) {
  FakeController fake;
  const auto done = fake.muster({"admin", "drain"});
  EXPECT_EQ(done.exit, 4);
  EXPECT_THAT(done.err, HasSubstr("is older than this muster and does not know this call: upgrade musterd"));
}

TEST(Submit, PrintsTheIdAloneAndTellsTheRestOnStderr) {
  FakeController fake;
  const auto done = fake.muster({"submit", write_job(fake, kJob), "--set", "name=b", "--set", "env.A=1"});
  EXPECT_EQ(done.exit, 0) << done.err;
  EXPECT_EQ(done.out, "1\n");
  EXPECT_THAT(done.err, HasSubstr("muster logs 1 -f"));
  fake.with([&](FakeState& s) {
    ASSERT_EQ(s.submitted.size(), 1U);
    EXPECT_EQ(s.submitted[0].spec().name(), "b");
    EXPECT_EQ(s.submitted[0].spec().env().at("A"), "1");
    EXPECT_EQ(s.submitted[0].spec().resources().stop_grace_ms(), 30'000) << "defaults filled in";
    EXPECT_FALSE(s.submitted[0].spec().requeue().has_max_failed()) << "a partition may have a budget of its own";
    EXPECT_EQ(s.submitted[0].spec().working_folder(), fake.folder().path().native());
    EXPECT_FALSE(s.submitted[0].user().empty());
  });
  EXPECT_EQ(fake.muster({"submit", write_job(fake, kJob), "--name", "c", "--set", "name=d", "--json"}).exit, 0);
  fake.with([&](FakeState& s) { EXPECT_EQ(s.submitted[1].spec().name(), "c") << "--name is stronger than --set"; });
}

TEST(Submit, ALostAnswerIsAskedForAgainWithTheSameRequestId) {
  FakeController fake;
  fake.with([](FakeState& s) { s.lose_answers = 2; });
  const auto done = fake.muster({"submit", "--json", write_job(fake, kJob)});
  EXPECT_EQ(done.exit, 0) << done.err;
  const auto answer = Json::parse(done.out);
  EXPECT_EQ(answer, (Json{{"api_version", "v1"}, {"job_id", 1}, {"already_submitted", true}}));
  fake.with([&](FakeState& s) {
    ASSERT_EQ(s.submitted.size(), 3U);
    EXPECT_EQ(s.submitted[0].request_id().size(), 32U);
    EXPECT_EQ(s.submitted[1].request_id(), s.submitted[0].request_id());
    EXPECT_EQ(s.submitted[2].request_id(), s.submitted[0].request_id());
  });
  fake.muster({"submit", write_job(fake, kJob)});
  fake.with([&](FakeState& s) { EXPECT_NE(s.submitted[3].request_id(), s.submitted[0].request_id()); });
}

TEST(Submit, AControllerWithTooManyCallsAtOnceIsAskedAgain) {
  FakeController fake;
  fake.with([](FakeState& s) { s.overloaded = 2; });
  const auto done = fake.muster({"submit", write_job(fake, kJob)});
  EXPECT_EQ(done.exit, 0) << done.err;
  EXPECT_NE(done.err.find("the controller has too many calls at the same time; trying again"), std::string::npos)
      << done.err;
  fake.with([&](FakeState& s) { EXPECT_EQ(s.submitted.size(), 1U); });
}

TEST(Submit, AControllerThatCanStoreNothingIsAskedAgain) {
  FakeController fake;
  fake.with([](FakeState& s) { s.store_full = 2; });
  const auto done = fake.muster({"submit", write_job(fake, kJob)});
  EXPECT_EQ(done.exit, 0) << done.err;
  EXPECT_THAT(done.err, AllOf(HasSubstr("muster: nothing was changed: the disk is full; trying again\n"),
                              Not(HasSubstr("lost"))));
  fake.with([&](FakeState& s) { EXPECT_EQ(s.submitted.size(), 1U); });
}

TEST(Submit, AtTheEndItIsSaidWhetherItWasAcceptedWhereThatIsKnown) {
  cli::Config config;
  config.address.value = "127.0.0.1:1";
  cli::Client client(config);
  const grpc::Status full(grpc::StatusCode::ABORTED, "nothing was changed: the disk is full"),
      overloaded(grpc::StatusCode::RESOURCE_EXHAUSTED, "Server Threadpool Exhausted"),
      lost(grpc::StatusCode::UNAVAILABLE, "Socket closed");
  const auto end_of = [&](const grpc::Status& status, bool maybe_accepted) -> std::pair<int, std::string> {
    cli::Tries tries{cli::Contact::Clock::now(), true, maybe_accepted};
    try {
      cli::ask_again(client, status, tries);
    } catch (const cli::Failure& failure) {
      return {failure.exit(), failure.what()};
    }
    return {0, ""};
  };
  EXPECT_EQ(end_of(full, false), std::pair(5, std::string("nothing was changed: the disk is full. The submission was "
                                                          "not accepted")));
  EXPECT_THAT(end_of(full, true).second, HasSubstr("It is not known whether the submission was accepted"));
  EXPECT_THAT(end_of(overloaded, false).second, HasSubstr("try again. The submission was not accepted"));
  EXPECT_EQ(end_of(lost, false).first, 4);
  EXPECT_THAT(end_of(lost, false).second, HasSubstr("It is not known whether the submission was accepted: see muster"));
}

TEST(Submit, AFolderWhoseNameIsNotUtf8IsNamedAndNothingIsSent) {
  FakeController fake;
  const auto folder = fake.folder().path() / "Mod\xE8le";
  std::filesystem::create_directory(folder);
  write_file(folder / "job.toml", kJob);
  const auto refused = fake.muster({"submit", folder / "job.toml"});
  EXPECT_EQ(refused.exit, 2);
  EXPECT_THAT(refused.err, HasSubstr("Mod\\xE8le/job.toml:1:1: working_folder \"" + fake.folder().path().native() +
                                     "/Mod\\xE8le\": want a path in UTF-8; rename"));
  EXPECT_TRUE(fake.get<bool>([](FakeState& s) { return s.submitted.empty(); }));
  write_file(folder / "job.toml", std::string(kJob) + "working_folder = \"/tmp\"\n");
  std::filesystem::copy_file(fake.folder().path() / "token", folder / "token");
  const auto taken = fake.muster({"submit", folder / "job.toml", "--token-file", folder / "token"});
  EXPECT_EQ(taken.exit, 0) << "files may be called as they like: " << taken.err;
}

TEST(Usage, WhatIsTypedInAnotherEncodingIsRefusedByEveryCommand) {
  FakeController fake;
  const auto job = write_job(fake, kJob);
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"submit", job, "--set", "env.X=\xff"}, "muster submit: --set \"env.X=\\xFF\": want UTF-8"},
      {{"submit", job, "--sweep", "env.X=a,\xe8"}, "muster submit: --sweep \"env.X=a,\\xE8\": want UTF-8"},
      {{"list", "--sweep", "s\xc3"}, "muster list: --sweep \"s\\xC3\": want UTF-8"},
      {{"admin", "partition", "remove", "b\xe4r"}, "muster admin partition remove: PARTITION \"b\\xE4r\": want UTF-8"},
      {{"admin", "partition", "add", "big", "--users", "ann,ren\xe9"},
       "muster admin partition add: --users \"ann,ren\\xE9\": want UTF-8"}};
  for (const auto& [arguments, says] : cases) {
    const auto refused = fake.muster(arguments);
    EXPECT_EQ(refused.exit, 2);
    EXPECT_THAT(refused.err, StartsWith(says));
    EXPECT_LT(refused.took, 10s);
  }
  fake.with([&](FakeState& s) { EXPECT_TRUE(s.submitted.empty() && s.swept.empty() && s.asked.empty()); });
  EXPECT_EQ(fake.muster({"submit", job, "--set", "env.X=Modèle"}).exit, 0);
}

TEST(Usage, ALateAnswerIsSaidToBeAsLateAsItIs) {
  FakeController fake;
  cli::Config config;
  config.address.value = fake.address();
  config.token = FakeController::kToken;
  cli::Client client(config);
  grpc::Status status;
  fake.with([&](FakeState&) {  // the server's answer waits for this lock
    muster::v1::ListResponse response;
    status = client.try_call([&](auto* context) { return client.jobs().List(context, {}, &response); },
                             std::chrono::seconds(1));
  });
  EXPECT_THAT(client.failure(status).what(), HasSubstr("has not answered in 1s: look at its log"));
}

TEST(Submit, ABadJobFileIsRefusedBeforeAnythingIsSent) {
  FakeController fake;
  const auto file = write_job(fake, "name = \"a b\"\n[train]\nsteps = 0\n");
  const auto refused = fake.muster({"submit", file, "--set", "train.learing_rate=1"});
  EXPECT_EQ(refused.exit, 2);
  EXPECT_EQ(refused.out, "");
  EXPECT_THAT(refused.err, HasSubstr(file + ":1:8: name \"a b\": want 1 to 128"));
  EXPECT_THAT(refused.err, HasSubstr(file + ":3:9: train.steps \"0\": want a whole number"));
  EXPECT_THAT(refused.err, HasSubstr("--set train.learing_rate=1: unknown key, did you mean train.learning_rate"));
  EXPECT_THAT(refused.err, HasSubstr("nothing was submitted"));
  EXPECT_TRUE(fake.get<bool>([](FakeState& s) { return s.submitted.empty(); }));
}

TEST(Submit, WaitAndFollowGiveTheJobsResult) {
  FakeController fake;
  int jobs = 0;
  for (const auto& [state, exit] : {std::pair{"succeeded", 0}, {"failed", 1}, {"cancelled", 1}}) {
    fake.with([state = state](FakeState& s) { s.submitted_state = state; });
    for (const char* option : {"--wait", "--follow"}) {
      const auto done = fake.muster({"submit", option, write_job(fake, kJob)});
      EXPECT_EQ(done.exit, exit) << option << done.err;
      EXPECT_EQ(done.out, std::to_string(++jobs) + "\n") << option;
      EXPECT_THAT(done.err, HasSubstr("job " + std::to_string(jobs) + " " + state));
    }
  }
  EXPECT_EQ(fake.muster({"submit", "--wait", "--follow", write_job(fake, kJob)}).exit, 2);
}

TEST(Read, JsonIsAnEmptyArrayWhenThereIsNothing) {
  FakeController fake;
  EXPECT_EQ(fake.muster({"list", "--json"}).out, "[]\n");
  EXPECT_EQ(fake.muster({"events", "--json"}).out, "[]\n");
  add_job(fake, "pending");
  EXPECT_EQ(fake.muster({"metrics", "1", "--json"}).out, "[]\n");
  EXPECT_EQ(fake.muster({"logs", "1", "--json"}).out, "[]\n");
}

TEST(Submit, FollowShowsAProgramsOutputOnStderrAndTheIdAloneOnStdout) {
  FakeController fake;
  fake.with([](FakeState& s) {
    s.logs.emplace_back().set_attempt(1);
    s.logs.back().set_data("it says so\n");
  });
  const auto followed = fake.muster({"submit", "--follow", write_job(fake, kJob)});
  EXPECT_EQ(followed.out, "1\n");
  EXPECT_THAT(followed.err, HasSubstr("it says so\n"));
}

std::vector<std::int64_t> ids_of(const std::string& json) {
  std::vector<std::int64_t> ids;
  for (const auto& job : Json::parse(json)) ids.push_back(job.at("id"));
  return ids;
}

TEST(Read, ListGoesOverPagesAndHandsTheStatesOn) {
  FakeController fake;
  fake.with([](FakeState& s) {
    for (int id = 1; id <= 1205; ++id) {
      s.jobs.emplace_back().set_id(id);
      s.jobs.back().set_state("failed");
    }
  });
  const auto done = fake.muster({"list", "--limit", "1203", "--state", "failed", "--state", "waiting", "--json"});
  std::vector<std::int64_t> wanted;
  for (int id = 1205; id > 2; --id) wanted.push_back(id);
  EXPECT_EQ(ids_of(done.out), wanted) << "each once, the newest first";
  fake.with([](FakeState& s) {
    ASSERT_EQ(s.list_requests.size(), 2U);
    for (const auto& request : s.list_requests) {
      EXPECT_THAT(request.states(), testing::ElementsAre("failed", "waiting"));
    }
    EXPECT_EQ(s.list_requests[1].limit(), 203U);
  });
}

TEST(Read, ListTakesNumbersAndNamesThoseThatThereAreNot) {
  FakeController fake;
  for (int id = 1; id <= 3; ++id) fake.with([&](FakeState& s) { s.jobs.emplace_back().set_id(id); });
  EXPECT_EQ(ids_of(fake.muster({"list", "3", "1", "--json"}).out), (std::vector<std::int64_t>{3, 1}));
  const auto done = fake.muster({"list", "1", "9"});
  EXPECT_EQ(done.err, "muster list: there is no job 9\n");
  EXPECT_NE(done.exit, 0);
  EXPECT_THAT(done.out, HasSubstr("ID")) << "what there is, is shown";
}

TEST(Read, ShowJsonHoldsTheJobWithItsAttemptsAndRanks) {
  FakeController fake;
  add_job(fake, "running");
  const auto job = nlohmann::ordered_json::parse(fake.muster({"show", "1", "--json"}).out);
  EXPECT_EQ(job.begin().key(), "api_version");
  EXPECT_EQ(job.at("api_version"), "v1");
  for (const char* key : {"id", "name", "state", "attempts", "ranks", "step", "reason"})
    EXPECT_TRUE(job.contains(key)) << key;
  const auto& attempts = job.at("attempts");
  for (const char* key : {"number", "state", "cause", "reason", "started_at", "ended_at", "resumed_from_step"}) {
    EXPECT_TRUE(attempts[0].contains(key)) << key;
  }
  EXPECT_EQ(attempts[0].at("ended_at"), "2026-11-20T19:49:56.000Z");
  EXPECT_TRUE(attempts[1].at("ended_at").is_null());
  EXPECT_TRUE(job.at("ended_at").is_null());
  EXPECT_EQ(job.at("spec").at("env").at("STARTED_AT"), "") << "a user's variable is no time";
  for (const char* key : {"rank", "node", "pid", "state", "step", "last_heartbeat_ms", "memory_bytes"}) {
    EXPECT_TRUE(job.at("ranks")[0].contains(key)) << key;
  }
}

TEST(Read, MetricsComeAsJsonCsvAndTable) {
  FakeController fake;
  add_job(fake, "succeeded");
  fake.with([](FakeState& s) {
    for (int step = 1; step <= 3; ++step) {
      auto& metric = s.metrics.emplace_back();
      metric.set_attempt(1);
      metric.set_step(step);
      metric.set_loss(5.5 / step);
      metric.set_tokens_per_s(20000.25);
      metric.set_step_ms(81.5);
      metric.set_memory_peak_bytes(812 << 20);
      (*metric.mutable_series())["loss"] = 5.5 / step;
      (*metric.mutable_series())["tokens_per_s"] = 20000.25;
      if (step == 3) (*metric.mutable_series())["validation/loss"] = 1.75;
      if (step == 2) (*metric.mutable_series())["reward/mean"] = 0.25;
    }
  });
  const auto rows = Json::parse(fake.muster({"metrics", "1", "--json"}).out);
  ASSERT_EQ(rows.size(), 3U);
  for (const char* key : {"api_version", "attempt", "step", "loss", "tokens_per_s", "step_ms", "memory_peak_bytes"}) {
    EXPECT_TRUE(rows[0].contains(key)) << key;
  }
  EXPECT_EQ(rows[0].at("series"), (Json{{"loss", 5.5}, {"tokens_per_s", 20000.25}}));
  EXPECT_EQ(rows[2].at("series").at("validation/loss"), 1.75);
  std::istringstream lines(fake.muster({"metrics", "1", "-f", "--json"}).out);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_EQ(Json::parse(line).at("step"), count + 1);
  EXPECT_EQ(count, 3) << "following, one object a line";
  EXPECT_THAT(fake.muster({"metrics", "1", "--csv"}).out,
              AllOf(StartsWith("attempt,step,loss,tokens_per_s,"), HasSubstr("\n1,2,2.75,20000.25,")));
  EXPECT_THAT(fake.muster({"metrics", "1", "--csv"}).out, Not(HasSubstr("\nattempt,"))) << "the names once";
  EXPECT_EQ(fake.muster({"metrics", "1", "--attempt", "2"}).exit, 0);
  EXPECT_EQ(fake.get<unsigned>([](FakeState& s) { return s.metrics_requests.back().attempt(); }), 2U);
  const auto table = fake.muster({"metrics", "1"}).out;
  EXPECT_THAT(table, HasSubstr("812 MiB"));
  EXPECT_LE(widest_line(table), 80U);
  fake.with([](FakeState& s) { (*s.metrics[2].mutable_series())["learning_rate"] = -0.000301461234; });
  EXPECT_THAT(fake.muster({"metrics", "1"}, {{"COLUMNS", "120"}}).out, HasSubstr(" -0.00030146"))
      << "no two columns touch, however long a number is";
  EXPECT_THAT(fake.muster({"metrics", "1"}, {{"COLUMNS", "120"}}).out,
              AllOf(HasSubstr("LOSS"), HasSubstr("TOK/S"), HasSubstr("REWARD MEAN"), HasSubstr("VAL LOSS")));
  EXPECT_EQ(fake.muster({"metrics", "1", "--csv", "--series", "reward/mean", "--series", "loss"}).out,
            "attempt,step,reward/mean,loss\n1,1,,5.5\n1,2,0.25,2.75\n1,3,,1.8333333333333333\n");
  EXPECT_EQ(fake.muster({"metrics", "1", "--csv", "--series", "validation/loss"}).out,
            "attempt,step,validation/loss\n1,3,1.75\n")
      << "only the steps that have it";
  fake.with([](FakeState& s) { s.metrics[0].set_aged_before_step(96); });
  const auto aged = fake.muster({"metrics", "1", "--csv", "--series", "validation/loss"});
  EXPECT_EQ(aged.out, "attempt,step,validation/loss\n1,3,1.75\n") << "the rows are as they were";
  EXPECT_THAT(aged.err, HasSubstr("job 1, attempt 1: the steps before 96 have aged out"));
  EXPECT_EQ(Json::parse(fake.muster({"metrics", "1", "--json"}).out)[0].at("aged_before_step"), 96);
  const auto wrong = fake.muster({"metrics", "1", "--series", "validation_loss"});
  EXPECT_EQ(wrong.exit, 2);
  EXPECT_THAT(wrong.err, AllOf(HasSubstr("job 1: there is no series validation_loss, want one of loss, "),
                               HasSubstr("did you mean validation/loss")));
  EXPECT_EQ(fake.muster({"metrics", "1", "--csv", "--json"}).exit, 2);
}

TEST(Read, EventsNameTheirJobWhereThereMayBeOthers) {
  FakeController fake;
  add_job(fake, "running");
  fake.with([](FakeState& s) {
    for (const char* text : {"rank 1 was killed", ""}) {
      auto& event = s.events.emplace_back();
      event.set_id(static_cast<std::int64_t>(s.events.size()));
      event.set_job_id(1);
      event.set_attempt(2);
      event.set_at("2026-11-20T19:48:55.123Z");
      event.set_type("rank_exited");
      event.set_text(text);
    }
  });
  EXPECT_EQ(fake.muster({"events"}).out,
            "2026-11-20 19:48:55 UTC  job 1 attempt 2     rank 1 was killed\n"
            "2026-11-20 19:48:55 UTC  job 1 attempt 2     rank_exited\n");
  EXPECT_EQ(fake.muster({"events", "1"}).out,
            "2026-11-20 19:48:55 UTC  attempt 2   rank 1 was killed\n"
            "2026-11-20 19:48:55 UTC  attempt 2   rank_exited\n");
  fake.with([](FakeState& s) {
    EXPECT_EQ(s.event_requests[0].job_id(), 0);
    EXPECT_EQ(s.event_requests[1].job_id(), 1);
  });
}

TEST(Read, AJobWithoutMetricsOrJobsIsSaidOnStderr) {
  FakeController fake;
  EXPECT_THAT(fake.muster({"list"}).err, HasSubstr("no jobs; submit one"));
  EXPECT_THAT(fake.muster({"list", "--state", "queued"}).err, HasSubstr("no job matches"));
  add_job(fake, "running");
  const auto none = fake.muster({"metrics", "1"});
  EXPECT_EQ(none.out, "");
  EXPECT_THAT(none.err, HasSubstr("job 1 has no metrics yet"));
  EXPECT_THAT(fake.muster({"metrics", "1", "--attempt", "7"}).err, HasSubstr("job 1 has no metrics of attempt 7"));
}

TEST(Read, TablesFit80ColumnsAndArePlainOffATerminal) {
  FakeController fake;
  for (const char* state : {"running", "failed", "succeeded"}) add_job(fake, state);
  fake.with([](FakeState& s) {
    auto& event = s.events.emplace_back();
    event.set_id(1);
    event.set_job_id(1);
    event.set_attempt(1);
    event.set_at("2026-11-20T19:48:55.123Z");
    event.set_text(
        "rank 1 said nothing for 2.6 s and its process was stopped; attempt 2 starts in 1 s (silence 1 of 5)");
  });
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"list"}, {"show", "1"}, {"events", "1"}, {"events"}, {"doctor"}}) {
    const auto done = fake.muster(arguments);
    EXPECT_LE(widest_line(done.out), 80U) << done.out;
    EXPECT_THAT(done.out, AllOf(Not(HasSubstr("\r")), Not(HasSubstr("\x1b")))) << done.out;
  }
  EXPECT_THAT(fake.muster({"list"}).out, AllOf(HasSubstr("50/150"), HasSubstr("manpages-l")));
  EXPECT_THAT(fake.muster({"show", "1"}).out,
              AllOf(HasSubstr("rank_silent"), HasSubstr("812 MiB"), HasSubstr("312ms")));
}

TEST(Read, WhatAProgramDoesNotTellIsADash) {
  FakeController fake;
  add_job(fake, "running");
  fake.with([](FakeState& s) {
    auto& job = s.jobs[0];
    job.set_kind("command");
    job.clear_step(), job.clear_steps_total(), job.clear_loss();
    for (auto& attempt : *job.mutable_attempts()) attempt.clear_resumed_from_step();
    for (auto& rank : *job.mutable_ranks()) rank.clear_step(), rank.clear_section();
    job.add_notes("liveness.hung_after has no effect");
  });
  const auto shown = fake.muster({"show", "1"}, {{"COLUMNS", ""}}).out;
  EXPECT_THAT(shown, ContainsRegex(" 1  ended +rank_silent +-  2026-11-20"));
  EXPECT_THAT(shown, ContainsRegex(" running +- +-  312ms")) << "section and step";
  EXPECT_THAT(shown, ContainsRegex("note +liveness.hung_after has no effect\n"));
  EXPECT_THAT(shown, Not(ContainsRegex("\n *step "))) << shown;
  EXPECT_THAT(fake.muster({"list"}, {{"COLUMNS", ""}}).out, ContainsRegex("running +2 +- +-"));
  const auto json = Json::parse(fake.muster({"show", "1", "--json"}).out);
  EXPECT_TRUE(json.at("step").is_null());
  EXPECT_TRUE(json.at("attempts")[0].at("resumed_from_step").is_null());
}

TEST(Read, WhatAProgramTellsOfItselfIsShown) {
  FakeController fake;
  add_job(fake, "running");
  fake.with([](FakeState& s) {
    auto& job = s.jobs[0];
    job.set_program_status("evaluates");
    job.set_hang_limit("12 s, learned from 200 steps, in section step");
    auto& saved = *job.add_checkpoints();
    saved.set_step(120);
    saved.set_path("/ckpt/120");
    saved.set_bytes(2048);
    for (int i = 0; i < 25; ++i) (*job.mutable_config())["key" + std::to_string(10 + i)] = std::to_string(i);
    for (const auto& [name, held_out] : {std::pair("wait_ms", false), {"validation/f1", true}}) {
      auto& series = *job.add_series();
      series.set_name(name);
      series.set_held_out(held_out);
      series.set_value(0.5);
    }
    job.mutable_attempts()->rbegin()->set_trace("Traceback:\n  line 3");
  });
  const auto shown = fake.muster({"show", "1"}, {{"COLUMNS", ""}}).out;
  EXPECT_THAT(shown, ContainsRegex("status +evaluates\n"));
  EXPECT_THAT(shown, ContainsRegex("hang limit +12 s, learned from 200 steps, in section step\n"));
  EXPECT_THAT(shown, ContainsRegex("step 120, 2.*: /ckpt/120\n"));
  EXPECT_THAT(shown, ContainsRegex("series +validation/f1 0.5.*wait_ms 0.5"));
  EXPECT_THAT(shown, ContainsRegex("settings +key10 = 0\n +key11 = 1\n"));
  EXPECT_THAT(shown, HasSubstr("and 5 more: muster show 1 --json\n"));
  EXPECT_THAT(shown, ContainsRegex("trace +\\| Traceback:\n +\\|   line 3\n"));
  EXPECT_THAT(fake.muster({"list"}, {{"COLUMNS", ""}}).out, ContainsRegex("STATUS.*\n.* evaluates "));
  EXPECT_EQ(Json::parse(fake.muster({"show", "1", "--json"}).out).at("config").at("key12"), "2");
}

TEST(Read, InAPipeNothingIsCut) {
  FakeController fake;
  add_job(fake, "running");
  const auto job = sample_job(1, "running");
  for (const auto& arguments : {std::vector<std::string>{"list"}, {"show", "1"}}) {
    const auto whole = fake.muster(arguments, {{"COLUMNS", ""}}).out;
    EXPECT_THAT(whole, AllOf(HasSubstr(job.name()), HasSubstr(job.reason() + "\n"), Not(HasSubstr("...")))) << whole;
    EXPECT_LE(widest_line(fake.muster(arguments, {{"COLUMNS", "60"}}).out), 60U) << "unless somebody asks for it";
  }
  EXPECT_THAT(fake.muster({"show", "1"}, {{"COLUMNS", ""}}).out, HasSubstr(job.attempts(0).reason() + "\n"));
}

/// Runs muster with a terminal of `columns` columns as its stdout. Returns what it wrote there.
std::string on_terminal(FakeController& fake, std::vector<std::string> arguments, unsigned short columns, bool no_color,
                        const char* kind = "xterm") {
  arguments.insert(arguments.begin(), ::test::built_program("muster"));
  std::vector<std::string> variables{std::string("TERM=") + kind, "PATH=/usr/bin:/bin"};
  for (const auto& [name, value] : fake.environment()) variables.push_back(name + "=" + value);
  if (no_color) variables.emplace_back("NO_COLOR=1");
  std::vector<char*> argv, envp;
  for (auto& text : arguments) argv.push_back(text.data());
  for (auto& text : variables) envp.push_back(text.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  winsize size{24, columns, 0, 0};
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  std::string out;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(terminal, buffer, sizeof buffer)) > 0;)
    out.append(buffer, static_cast<std::size_t>(got));
  close(terminal);
  int status = 0;
  waitpid(child, &status, 0);
  return out;
}

TEST(Read, ATerminalGetsColourAndItsOwnWidth) {
  FakeController fake;
  add_job(fake, "failed");
  EXPECT_THAT(on_terminal(fake, {"list"}, 100, false), HasSubstr("\x1b[31mfailed\x1b[0m"));
  EXPECT_THAT(on_terminal(fake, {"list"}, 100, false, "dumb"), AllOf(HasSubstr("failed"), Not(HasSubstr("\x1b"))));
  const auto plain = on_terminal(fake, {"list"}, 60, true);
  EXPECT_THAT(plain, AllOf(HasSubstr("failed"), Not(HasSubstr("\x1b"))));
  EXPECT_LE(widest_line(plain), 61U) << "with the terminal's own carriage return";
  fake.with([](FakeState& state) {
    state.metrics.emplace_back().set_attempt(1);
    state.metrics.back().set_step(1);
    (*state.metrics.back().mutable_series())["loss"] = 2.5;
  });
  const auto narrow = on_terminal(fake, {"metrics", "1"}, 40, true);
  EXPECT_THAT(narrow, HasSubstr("LOSS"));
  EXPECT_LE(widest_line(narrow), 41U) << narrow;
}

TEST(Read, ALogReachesATerminalWithItsColoursAndWithoutAnythingElseThatActsOnIt) {
  FakeController fake;
  add_job(fake, "running");
  const std::string log = "\x1b[31mred\x1b[0m \x1b]0;title\a\x1b[2J\x1b[Hgone\n";
  fake.with([&](FakeState& state) {
    state.logs.emplace_back().set_attempt(1);
    state.logs.back().set_data(log);
  });
  const auto shown = on_terminal(fake, {"logs", "1"}, 80, false);
  EXPECT_THAT(shown, HasSubstr("\x1b[31mred\x1b[0m gone"));
  EXPECT_THAT(shown, AllOf(Not(HasSubstr("title")), Not(HasSubstr("\x1b[2J"))));
  EXPECT_EQ(fake.muster({"logs", "1"}).out, "[rank 0] " + log) << "a pipe gets every byte";
}

TEST(Help, SaysHowManyJobsACommandTakesInWordsOfPeople) {
  const auto help = [](const char* command) {
    return run({::test::built_program("muster"), command, "--help"}, {}, 10s).out;
  };
  EXPECT_THAT(help("list"), AllOf(HasSubstr("[JOB...]"), Not(HasSubstr("(0x)"))));
  EXPECT_THAT(help("show"), HasSubstr(" JOB...\n"));
  EXPECT_THAT(help("logs"), HasSubstr(" JOB\n"));
}

TEST(Help, LinesFitATerminal) {
  std::vector<std::string> names{"muster",
                                 "admin_audit",
                                 "admin_partition",
                                 "admin_partition_add",
                                 "admin_partition_list",
                                 "admin_partition_remove",
                                 "admin_partition_set"};
  for (const auto& command : cli::commands()) {
    if (command.name != "version") names.emplace_back(command.name);
  }
  for (const auto& name : names) {
    const auto prose = cli::help_text(name);
    EXPECT_FALSE(prose.empty()) << name;
    std::istringstream lines(prose);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120U) << name << ": " << line;
  }
}

TEST(Json, WhetherAProgramThatTellsNothingHasSavedIsNotKnown) {
  FakeController fake;
  add_job(fake, "running");
  fake.with([](FakeState& s) {
    s.jobs[0].clear_step();
    s.jobs[0].set_last_checkpoint_step(0);
  });
  EXPECT_TRUE(nlohmann::json::parse(fake.muster({"show", "1", "--json"}).out).at("last_checkpoint_step").is_null());
  fake.with([](FakeState& s) { s.jobs[0].set_step(3); });
  EXPECT_EQ(nlohmann::json::parse(fake.muster({"show", "1", "--json"}).out).at("last_checkpoint_step"), 0);
}

TEST(ExitCodes, TellUsageNotFoundUnreachableAndRefused) {
  FakeController fake;
  add_job(fake, "succeeded");
  struct Case {
    std::vector<std::string> arguments;
    int exit;
    const char* says;
  };
  const Case cases[] = {
      {{"lst"}, 2, "did you mean muster list"},
      {{}, 2, "Usage"},
      {{"show"}, 2, "muster show: want JOB; see muster show --help"},
      {{"show", "seven"}, 2, "jobs: want a whole number from 1, not \"seven\"; see muster show --help"},
      {{"show", "-1"}, 2, "muster show --help"},
      {{"show", "99999999999999999999"}, 2, "want a whole number from 1"},
      {{"show", "1", "--jsn"}, 2, "there is no option --jsn, did you mean --json; see"},
      {{"--jsn"}, 2, "muster: there is no option --jsn"},
      {{"--address", "127.0.0.1:1"}, 2, "muster: want a command; see muster --help"},
      {{"list", "--stat", "failed"}, 2, "muster list: there is no option --stat, did you mean --state; see"},
      {{"list", "failed"}, 2, "want a whole number from 1, not \"failed\""},
      {{"logs", "1", "2"}, 2, "\"2\" is one argument too many"},
      {{"logs", "1", "--rank"}, 2, "--rank wants a value"},
      {{"logs", "1", "--rank", "x"}, 2, "--rank: want a whole number from 0, not \"x\""},
      {{"logs", "1", "--tail", "0"}, 2, "--tail: want a whole number from 1, not \"0\""},
      {{"list", "--limit", "100001"}, 2, "--limit: want a whole number from 1 to 100000, not"},
      {{"--address", "nonsense", "list"}, 2, "--address \"nonsense\": want host:port such as"},
      {{"list", "--state", "happy"}, 2, "muster list --help"},
      {{"wait", "1", "--timeout", "soon"}, 2, "want a duration such as 90s"},
      {{"show", "77"}, 3, "muster show: no job 77; muster list"},
      {{"list", "--sweep", "s99"}, 3, "no sweep s99"},
      {{"cancel", "77"}, 3, "no job 77"},
      {{"cancel", "1"}, 2, "muster cancel: job 1 has ended already"},
      {{"logs", "77"}, 3, "no job 77"},
      {{"wait", "77"}, 3, "no job 77"},
      {{"--address", "127.0.0.1:1", "list"},
       4,
       "controller unreachable at 127.0.0.1:1 (--address): start it with musterd, or set --address"},
      {{"list", "--token-file", "/no/such/token"}, 4, "(--token-file): No such file or directory; "},
      {{"list", "--token-file", "/tmp"}, 4, "cannot read the token from /tmp (--token-file): it is a folder; "}};
  for (const auto& [arguments, exit, says] : cases) {
    const auto done = fake.muster(arguments);
    EXPECT_EQ(done.exit, exit) << says << done.err;
    EXPECT_THAT(done.err, HasSubstr(says));
    EXPECT_EQ(done.out, "");
  }
  const auto wrong = fake.muster({"list"}, {{"MUSTER_TOKEN", "wrong"}});
  EXPECT_EQ(wrong.exit, 4);
  EXPECT_THAT(wrong.err, HasSubstr("refuses the token from MUSTER_TOKEN"));
  EXPECT_EQ(fake.muster({"list"}, {{"MUSTER_TOKEN", FakeController::kToken}, {"MUSTER_TOKEN_FILE", "/none"}}).exit, 0);
  fake.with([](FakeState& s) { s.full = true; });
  EXPECT_EQ(fake.muster({"list"}).exit, 5);
}

TEST(Help, IsProseWithConsequencesAndEveryKey) {
  FakeController fake;
  const auto help = fake.muster({"submit", "--help"});
  EXPECT_EQ(help.exit, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("a lost answer never makes a second job"), HasSubstr("learning_rate = 3e-4")));
  EXPECT_THAT(fake.muster({"--help"}).out, HasSubstr("Exit codes:"));
  for (const auto* word : {"version", "--version"}) {
    EXPECT_THAT(fake.muster({word}).out,
                ::testing::MatchesRegex("muster 0\\.1\\.0( \\([0-9a-f]{12}\\))?\n"
                                        "muster-worker(: not installed; .*| 0\\.1\\.0.*, LibTorch 2\\.[0-9.]+)\n"));
  }
}

TEST(Help, SaysWhatAnOptionTakesWithoutTheParsersTypeNames) {
  FakeController fake;
  EXPECT_THAT(fake.muster({"--help"}).out, HasSubstr("--address HOST:PORT "));
  EXPECT_THAT(fake.muster({"show", "--help"}).out, HasSubstr("Usage: muster show [OPTIONS] JOB...\n"));
  EXPECT_THAT(fake.muster({"events", "--help"}).out, HasSubstr("Usage: muster events [OPTIONS] [JOB]\n"));
  EXPECT_THAT(fake.muster({"list", "--help"}).out,
              AllOf(HasSubstr("--limit N = 100 "), HasSubstr("--state {pending,")));
  for (const char* command : {"submit", "list", "show", "logs", "events", "metrics", "wait", "completion"}) {
    const auto help = fake.muster({command, "--help"}).out;
    for (const char* inner : {"TEXT", "UINT", "POSITIVE", "REQUIRED", "Excludes:", "Positionals"}) {
      EXPECT_THAT(help, Not(HasSubstr(inner))) << command;
    }
  }
}

TEST(Outcome, TellsStateAndReasonOnceEach) {
  muster::v1::Job job;
  job.set_state("cancelled");
  EXPECT_EQ(cli::outcome_text(job), "cancelled");
  job.set_reason("cancelled by ada");
  EXPECT_EQ(cli::outcome_text(job), "cancelled by ada");
  job.set_state("stopping");
  EXPECT_EQ(cli::outcome_text(job), "stopping: cancelled by ada");
}

TEST(Doctor, NamesWhatIsWrongAndExitsWith1) {
  FakeController fake;
  const auto verdicts = [&] {
    std::map<std::string, std::string> found;
    for (const auto& row : Json::parse(fake.muster({"doctor", "--json"}).out))
      found[row.at("check")] = row.at("verdict");
    return found;
  };
  auto found = verdicts();
  for (const char* check : {"configuration", "token", "controller", "store", "disk"})
    EXPECT_EQ(found.at(check), "ok") << check;
  for (const char* check : {"worker", "data", "slurm"}) EXPECT_TRUE(found.contains(check)) << check;
  fake.with([](FakeState& s) { s.store_problem = "the disk is full: free some"; });
  EXPECT_EQ(verdicts().at("store"), "bad");
  EXPECT_EQ(fake.muster({"doctor"}).exit, 1);
  EXPECT_THAT(fake.muster({"doctor"}).out, HasSubstr("the disk is full"));
  const auto token = fake.folder().path() / "token";
  using std::filesystem::perms;
  // The admin guide allows a copy that a group can read.
  for (const auto& [others, verdict] :
       {std::pair(perms::others_read, "bad"), {perms::group_write, "bad"}, {perms::group_read, "ok"}}) {
    std::filesystem::permissions(token, others, std::filesystem::perm_options::add);
    EXPECT_EQ(verdicts().at("token"), verdict);
    std::filesystem::permissions(token, others, std::filesystem::perm_options::remove);
    EXPECT_EQ(verdicts().at("token"), "ok");
  }
  std::filesystem::remove(token);
  EXPECT_EQ(verdicts().at("token"), "bad");
  fake.stop();
  EXPECT_EQ(verdicts().at("controller"), "bad");
}

TEST(Doctor, LooksAtTheDiskTheVersionAndTheDashboardOfTheController) {
  FakeController fake;
  fake.with([](FakeState& s) {
    s.free_bytes = (std::int64_t{1} << 30) - 1;
    s.version = "0.0.9";
    s.dashboard_url = "http://127.0.0.1:7601";
  });
  const auto rows = Json::parse(fake.muster({"doctor", "--json"}).out);
  std::map<std::string, std::pair<std::string, std::string>> found;
  for (const auto& row : rows) found[row.at("check")] = {row.at("verdict"), row.at("text")};
  EXPECT_EQ(found.at("disk").first, "bad");
  EXPECT_THAT(found.at("disk").second, HasSubstr("free in /var/lib/muster: free some"));
  EXPECT_EQ(found.at("controller").first, "note");
  EXPECT_THAT(found.at("controller").second, HasSubstr("musterd 0.0.9"));
  EXPECT_EQ(found.at("dashboard").second, "http://127.0.0.1:7601; muster dashboard prints a link that logs in");
}

/// Doctor's finding of this name, if muster is alone in its folder, which is this one below the test's: {verdict,
/// text}.
std::pair<std::string, std::string> finding_of(FakeController& fake, const std::string& check, const std::string& path,
                                               const std::string& address, const std::string& place = "alone") {
  const auto alone = fake.folder().path() / place;
  std::filesystem::create_directories(alone);
  if (!std::filesystem::exists(alone / "muster"))
    std::filesystem::copy_file(::test::built_program("muster"), alone / "muster");
  auto variables = fake.environment();
  variables["PATH"] = path;
  variables["MUSTER_ADDRESS"] = address;
  for (const auto& row : Json::parse(run({alone / "muster", "doctor", "--json"}, variables, 30s).out)) {
    if (row.at("check") == check) return {row.at("verdict"), row.at("text")};
  }
  return {};
}

/// A program of this name, a script, in a folder of its own; returns that folder.
std::filesystem::path add_script(FakeController& fake, const std::string& name, const std::string& text) {
  const auto other = fake.folder().path() / "other";
  std::filesystem::create_directories(other);
  write_file(other / name, "#!/bin/sh\n" + text + "\n");
  std::filesystem::permissions(other / name, std::filesystem::perms::owner_all);
  return other;
}

TEST(Doctor, WantsTheProgramsOfRanksWhereRanksRun) {
  for (const auto& [check, name, version] :
       {std::tuple("worker", "muster-worker", ": muster-worker 7, LibTorch 2.9.0"), {"sources", "muster-data", ""}}) {
    FakeController fake;
    const auto other = add_script(fake, name, "echo muster-worker 7, LibTorch 2.9.0");
    EXPECT_EQ(finding_of(fake, check, "/nowhere:" + other.native(), fake.address()),
              std::pair(std::string("ok"), (other / name).native() + version));
    const auto [verdict, text] = finding_of(fake, check, "/nowhere", fake.address());
    EXPECT_EQ(verdict, "bad");
    EXPECT_THAT(text, HasSubstr(std::string("there is no ") + name + " beside muster or in PATH, so "));
    EXPECT_EQ(finding_of(fake, check, "/nowhere", "192.0.2.1:7600").first, "note") << "they run elsewhere";
  }
}

TEST(Doctor, OfAProgramInAWheelLooksInTheFolderOfItsStarter) {
  FakeController fake;
  const auto environment = fake.folder().path() / "env";
  for (const char* name : {"muster", "muster-data"}) add_script(fake, name, "exit 1");
  std::filesystem::create_directories(environment);
  std::filesystem::rename(fake.folder().path() / "other", environment / "bin");
  const auto [verdict, text] = finding_of(fake, "sources", "/nowhere", fake.address(),
                                          "env/lib/python3.98/site-packages/muster_hpc_worker/2.11/cpu");
  EXPECT_EQ(verdict, "ok");
  EXPECT_EQ(text, (environment / "bin/muster-data").native());
}

TEST(Doctor, SaysWhyAWorkerDoesNotStart) {
  FakeController fake;
  const auto other = add_script(fake, "muster-worker", "echo muster-worker: error: there is no torch >&2; exit 93");
  const auto said = (other / "muster-worker").native() + " does not start: muster-worker: error: there is no torch";
  for (const auto& [address, verdict] : {std::pair(fake.address(), "bad"), {"192.0.2.1:7600", "note"}})
    EXPECT_EQ(finding_of(fake, "worker", "/nowhere:" + other.native(), address), std::pair(std::string(verdict), said));
}

TEST(Doctor, AFaultyConfigurationIsAFindingToo) {
  FakeController fake;
  const auto done = fake.muster({"doctor"}, {{"MUSTER_ADDRESS", "nonsense"}});
  EXPECT_EQ(done.exit, 1);
  EXPECT_THAT(done.out, AllOf(HasSubstr("MUSTER_ADDRESS \"nonsense\": want host:port"), HasSubstr("slurm")));
}

TEST(Pipes, AReaderThatLeavesEndsTheProgramQuietly) {
  FakeController fake;
  for (int i = 0; i < 300; ++i) add_job(fake, "running");
  const auto done = run({"/bin/bash", "-c", ::test::built_program("muster") + " list --limit 300 --json | head -c 10"},
                        fake.environment(), 30s);
  EXPECT_EQ(done.exit, 0);
  EXPECT_EQ(done.err, "");
  const auto full =
      run({"/bin/bash", "-c", ::test::built_program("muster") + " list > /dev/full"}, fake.environment(), 30s);
  EXPECT_EQ(full.exit, 2);
  EXPECT_THAT(full.err, HasSubstr("standard output"));
}

}  // namespace
}  // namespace test
