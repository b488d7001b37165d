// Goal: a program that reports nothing is judged by what it saves, and nothing is said of it that nobody knows.
// Method: the real controller without threads; ranks and clock of our own, files in real folders.
#include <gmock/gmock.h>

#include <fstream>

#include "agent/watch/agent_files.h"
#include "agent/watch/last_words.h"
#include "controller/core/core_text.h"
#include "tests/controller/service/bench.h"

namespace service::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Progress : public ::testing::TestWithParam<StoreKind> {
 protected:
  std::filesystem::path attempt_folder(core::JobId id, core::AttemptNumber number) {
    return bench.folder() / "jobs" / std::to_string(id) / ("attempt-" + std::to_string(number));
  }
  void save(core::JobId id, const std::string& name) {
    const auto file = bench.folder() / "jobs" / std::to_string(id) / "checkpoints" / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << name;
  }
  core::AttemptNumber newest(core::JobId id) { return static_cast<core::AttemptNumber>(bench.job(id).attempts_size()); }
  /// The newest attempt's ranks end with this code; then the next attempt starts, if there is one.
  void fail(core::JobId id, int code = 1) {
    bench.executor().end_all({id, newest(id)}, {code, 0});
    bench.tick();
    bench.pass(10s);
  }

  Bench bench{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Stores, Progress, ::testing::Values(StoreKind::kMemory, StoreKind::kSqlite), store_name);

TEST_P(Progress, AFlakyProgramThatSavesComesBackUntilItIsDone) {
  const auto id = bench.submit(command_request("a"));
  for (int step = 5; step < 60; step += 5) {
    ASSERT_EQ(bench.state(id), "running") << bench.job(id).reason();
    save(id, "step-" + std::to_string(step) + "/model.pt");
    fail(id);
    bench.clock.advance(5min);  // the backoff grows: attempts this short are no health
    bench.tick();
  }
  bench.executor().end_all({id, newest(id)}, {0, 0});
  bench.tick();
  EXPECT_EQ(bench.state(id), "succeeded");
  EXPECT_EQ(bench.job(id).attempts_size(), 12);
  EXPECT_EQ(bench.count_events(id, "checkpoint_folder_seen"), 11);
}

TEST_P(Progress, OneThatSavesNothingNewDoesNot) {
  const auto id = bench.submit(command_request("a"));
  save(id, "pretrained.pt");
  fail(id);
  for (int i = 0; i < 9 && bench.state(id) == "running"; ++i) {
    save(id, "events.out.tfevents." + std::to_string(i));
    fail(id);
  }
  EXPECT_EQ(bench.job(id).attempts_size(), 4);
  EXPECT_THAT(bench.job(id).reason(), HasSubstr("failed 4 times without anything new in its checkpoint folder"));
}

// A configuration, say, with the time of the start in it.
TEST_P(Progress, AProgramThatOnlyWritesTheSameFileAtEachStartIsNotStartedForEver) {
  const auto id = bench.submit(command_request("a"));
  for (int i = 0; i < 9 && bench.state(id) == "running"; ++i) {
    save(id, "config.json");
    fail(id);
  }
  EXPECT_EQ(bench.job(id).attempts_size(), 4) << bench.job(id).reason();
}

TEST_P(Progress, FilesDoNotHideThatTheSameErrorComesAgain) {
  const auto id = bench.submit(command_request("a"));
  for (int i = 0; i < 9 && bench.state(id) == "running"; ++i) {
    save(id, "run-" + std::to_string(i) + "/config.json");
    bench.executor().tell(id, core::RankExited{newest(id), 0, {1, 0}, false, "", "ModuleNotFoundError: no torch"});
    bench.tick();
    bench.pass(10s);
  }
  EXPECT_EQ(bench.job(id).attempts_size(), 2) << bench.job(id).reason();
}

TEST_P(Progress, TheSameErrorAtAnotherStepIsAnotherEnd) {
  const auto id = bench.submit(recipe_request("a", 1));
  const auto fail_at = [&](core::Step step) {
    bench.heartbeat({id, newest(id)}, 0, step);
    bench.executor().tell(id, core::RankExited{newest(id), 0, {1, 0}, false, "", "RuntimeError: NCCL timeout"});
    bench.tick();
    bench.pass(10s);
  };
  fail_at(40);
  fail_at(55);
  ASSERT_EQ(bench.state(id), "running") << bench.job(id).reason();
  fail_at(55);
  EXPECT_EQ(bench.state(id), "failed");
  EXPECT_THAT(bench.job(id).reason(), HasSubstr("same error twice; not tried again"));
}

TEST_P(Progress, WhatIsNewIsInTheHistoryBeforeTheEndAndOnlyOfTheLastRank) {
  const auto id = bench.submit(command_request("a", 2));
  save(id, "step-5");
  bench.executor().end({id, 1}, 0, {1, 0});
  bench.tick();
  EXPECT_EQ(bench.count_events(id, "checkpoint_folder_seen"), 0) << "the other may still save";
  save(id, "step-6");
  bench.executor().end({id, 1}, 1, {0, 15});
  bench.tick();
  EXPECT_THAT(bench.event_types(id),
              ElementsAre("job_submitted", "attempt_launched", "rank_exited", "checkpoint_folder_seen", "rank_exited"));
}

TEST_P(Progress, SurvivesTheControllersDeath) {
  const auto id = bench.submit(command_request("a"));
  save(id, "step-5");
  bench.executor().end_silently({id, 1}, 0, {1, 0});
  bench.restart();
  bench.tick();
  EXPECT_EQ(bench.count_events(id, "checkpoint_folder_seen"), 1);
  bench.restart();
  EXPECT_THAT(bench.job(id).reason(), HasSubstr("(failure 1 of 3)"));
}

TEST_P(Progress, WhatWasThereBeforeAndIsNotKnownIsNotCalledNoProgress) {
  const auto id = bench.submit(command_request("a"));
  for (int i = 0; i < 4; ++i) {
    if (i == 1) std::filesystem::remove(attempt_folder(id, newest(id)) / "checkpoints-before.json");
    fail(id);
  }
  EXPECT_EQ(bench.state(id), "failed");
  EXPECT_THAT(bench.job(id).reason(), HasSubstr("failed 4 times, and it is not known whether it saved anything"));
}

TEST_P(Progress, IsNotLookedForWhereItTellsNothing) {
  const auto done = bench.submit(command_request("a"));
  save(done, "model.pt");
  bench.executor().end_all({done, 1}, {0, 0});
  const auto cancelled = bench.submit(command_request("b"));
  save(cancelled, "model.pt");
  ASSERT_TRUE(bench.controller().cancel(cancelled, "ada").ok());
  bench.tick();
  bench.executor().end_all({cancelled, 1}, {0, 15});
  const auto recipe = bench.submit(recipe_request("c"));
  save(recipe, "model.pt");
  bench.executor().end_all({recipe, 1}, {1, 0});
  bench.tick();
  for (const auto id : {done, cancelled, recipe}) EXPECT_EQ(bench.count_events(id, "checkpoint_folder_seen"), 0) << id;
}

TEST_P(Progress, OfAProgramThatReportsItsReportsCount) {
  const auto id = bench.submit(command_request("a"));
  EXPECT_FALSE(bench.job(id).reports());
  EXPECT_FALSE(bench.job(id).has_step());
  EXPECT_FALSE(bench.job(id).ranks(0).has_step());
  EXPECT_FALSE(bench.attempt(id, 1).has_resumed_from_step());
  auto beat = Bench::beat({id, 1}, 0, 12);
  beat.set_resumed_from_step(0);
  ASSERT_TRUE(bench.send(beat).ok());
  bench.tick();
  EXPECT_TRUE(bench.job(id).reports());
  EXPECT_EQ(bench.job(id).step(), 12);
  EXPECT_EQ(bench.job(id).ranks(0).step(), 12);
  EXPECT_TRUE(bench.attempt(id, 1).has_resumed_from_step());
  EXPECT_EQ(bench.count_events(id, "rank_joined"), 1);
  bench.heartbeat({id, 1}, 0, 13);
  EXPECT_EQ(bench.count_events(id, "rank_joined"), 1) << "said once";
  bench.restart();
  EXPECT_TRUE(bench.job(id).reports());
  save(id, "model.pt");
  fail(id);
  EXPECT_EQ(bench.count_events(id, "checkpoint_folder_seen"), 0);
  EXPECT_FALSE(bench.attempt(id, 2).has_resumed_from_step()) << "attempt 2 has not told yet";
}

/// A heartbeat of rank 0 with what its program says of itself.
muster::v1::HeartbeatRequest words_of(core::JobId id, core::AttemptNumber attempt, core::Step step) {
  auto beat = Bench::beat({id, attempt}, 0, step);
  auto& words = *beat.mutable_program();
  words.set_status("evaluates");
  words.set_total_steps(9000);
  words.set_config(R"({"lr":0.5,"optimizer":{"name":"adam"},"api_key":"hidden"})");
  return beat;
}

TEST_P(Progress, WhatAProgramSaysOfItselfIsShownAndStays) {
  const auto id = bench.submit(command_request("a"));
  auto beat = words_of(id, 1, 12);
  beat.set_section_name("evaluate");
  auto& saved = *beat.add_checkpoints();
  saved.set_step(12);
  saved.set_bytes(7);
  saved.set_path("/ckpt/12");
  ASSERT_TRUE(bench.send(beat).ok());
  beat.mutable_program()->mutable_error()->set_type("ValueError");
  beat.mutable_program()->mutable_error()->set_message("no data");
  beat.mutable_program()->mutable_error()->set_trace("line 3");
  beat.mutable_program()->set_bad_lines(2);
  beat.mutable_program()->set_first_bad_line("line 4: \"x\" is no JSON object");
  ASSERT_TRUE(bench.send(beat).ok());
  bench.tick();
  EXPECT_EQ(bench.count_events(id, "program_described"), 1) << "said once";
  EXPECT_EQ(bench.job(id).ranks(0).section(), "evaluate");
  EXPECT_EQ(bench.job(id).program_status(), "evaluates");
  const std::string note =
      "2 lines of its report files cannot be read, or only in part; the first: rank 0, line 4: \"x\" is no JSON object";
  EXPECT_THAT(bench.job(id).notes(), ElementsAre(note));
  EXPECT_THAT(bench.why(id).notes(), ElementsAre(note)) << "why says what show says";
  fail(id);
  bench.restart();
  const auto job = bench.job(id);
  EXPECT_EQ(job.steps_total(), 9000);
  EXPECT_EQ(job.config().at("lr"), "0.5");
  EXPECT_EQ(job.config().at("optimizer.name"), "adam");
  EXPECT_EQ(job.config().at("api_key"), "********");
  ASSERT_EQ(job.checkpoints_size(), 1);
  EXPECT_EQ(job.checkpoints(0).path(), "/ckpt/12");
  EXPECT_EQ(job.checkpoints(0).bytes(), 7);
  EXPECT_EQ(bench.attempt(id, 1).reason(), "rank 0 exited with 1: ValueError: no data");
  EXPECT_EQ(bench.attempt(id, 1).trace(), "line 3");
  EXPECT_THAT(job.notes(), ElementsAre()) << "the second attempt has no bad line yet";
}

// Ranks may share a log, as those of torchrun do: rank 0 alone reports, and rank 0 may have lost its connection.
TEST_P(Progress, ALostConnectionThatAProgramTellsGivesWayToTheErrorInTheLog) {
  const auto id = bench.submit(command_request("a"));
  const auto fails = [&](const std::string& told, const std::string& in_log) {
    const auto number = newest(id);
    auto beat = words_of(id, number, 12);
    beat.mutable_program()->mutable_error()->set_type("RuntimeError");
    beat.mutable_program()->mutable_error()->set_message(told);
    ASSERT_TRUE(bench.send(beat).ok());
    bench.executor().tell(id, core::RankExited{number, 0, {1, 0}, false, "", in_log});
    bench.tick();
    bench.pass(10s);
  };
  fails("Connection closed by peer [127.0.0.1]:4516", "RuntimeError: loss is not finite");
  EXPECT_EQ(bench.attempt(id, 1).reason(), "rank 0 exited with 1: RuntimeError: loss is not finite");
  fails("the disk is full", "RuntimeError: loss is not finite");
  EXPECT_EQ(bench.attempt(id, 2).reason(), "rank 0 exited with 1: RuntimeError: the disk is full");
}

TEST_P(Progress, TheSameErrorCountsBeforeAnyRankHasToldAStepAndNotAfter) {
  for (const bool rank_0_tells : {false, true}) {
    const auto id = bench.submit(command_request(rank_0_tells ? "told" : "untold", 2));
    for (int i = 0; i < 2; ++i) {
      const auto number = newest(id);
      bench.pass(61s, [&] {
        if (rank_0_tells) bench.heartbeat({id, number}, 0, 12 + i);
      });
      core::RankExited exit{number, 1, {1, 0}, false, "", "OSError: no such file: data.bin"};
      bench.executor().tell(id, exit);
      bench.executor().tell(id, core::RankExited{number, 0, {0, 15}, false, ""});
      bench.tick();
      bench.pass(10s);
    }
    EXPECT_EQ(bench.state(id), rank_0_tells ? "running" : "failed") << bench.job(id).reason();
  }
}

// A heartbeat tells of the newest step before all rows could be sent, and the agent may end in between.
TEST_P(Progress, RowsThatAnAgentCouldNotSendAreReadFromTheReportFile) {
  const auto id = bench.submit(command_request("a"));
  auto beat = Bench::beat({id, 1}, 0, 60);
  for (int step = 0; step <= 20; ++step) {
    auto& metric = *beat.add_metrics();
    metric.set_step(step);
    auto& loss = *metric.add_values();
    loss.set_series("loss");
    loss.set_value(1);
  }
  ASSERT_TRUE(bench.send(beat).ok());
  bench.tick();
  ASSERT_EQ(bench.job(id).ranks(0).step(), 60);
  const auto report = agent::watch::rank_files(attempt_folder(id, 1) / "logs", 0).report;
  std::filesystem::create_directories(report.parent_path());
  std::ofstream lines(report);
  for (int step = 0; step <= 60; ++step) {
    lines << "{\"step\":" << step << ",\"loss\":1}\n";
    if (step == 20) lines << "{\"step\":20,\"validation/loss\":2}\n";
  }
  lines.close();
  bench.executor().end_all({id, 1}, {0, 0});
  bench.tick();
  EXPECT_EQ(bench.state(id), "succeeded");
  const auto rows = bench.controller().metrics(id, 0, 0, 0, 1000);
  ASSERT_EQ(rows.size(), 61u);
  for (const auto& row : rows) EXPECT_EQ(row.series().size(), row.step() == 20 ? 2u : 1u) << row.step();
}

TEST_P(Progress, TheStatusAndTheStepsInAllAreInListsAfterTheEndToo) {
  const auto id = bench.submit(command_request("a"));
  const auto listed = [&] { return bench.controller().list({}).jobs(0); };
  ASSERT_TRUE(bench.send(words_of(id, 1, 12)).ok());
  bench.tick();
  EXPECT_EQ(listed().program_status(), "evaluates");
  bench.executor().end_all({id, 1}, {0, 0});
  bench.tick();
  bench.restart();
  EXPECT_EQ(listed().program_status(), "evaluates");
  EXPECT_EQ(listed().steps_total(), 9000);
}

TEST_P(Progress, AProgramOfWhichNoLineCanBeReadHasReportedNothing) {
  const auto id = bench.submit(command_request("a"));
  auto beat = Bench::beat({id, 1}, 0);
  beat.mutable_program()->set_bad_lines(1);
  beat.mutable_program()->set_first_bad_line("line 1: \"loss 3\" is no JSON object");
  ASSERT_TRUE(bench.send(beat).ok());
  bench.tick();
  EXPECT_FALSE(bench.job(id).reports());
  EXPECT_EQ(bench.count_events(id, "rank_joined"), 0);
  EXPECT_THAT(bench.job(id).notes(), ElementsAre(HasSubstr("rank 0, line 1: \"loss 3\"")));
}

TEST_P(Progress, WhatIsWrongWithASourceOfReportIsANoteAndStays) {
  auto request = command_request("a");
  request.mutable_spec()->mutable_requeue()->set_max_failed(0);
  const auto id = bench.submit(request);
  auto beat = Bench::beat({id, 1}, 0);
  beat.mutable_program()->set_source_trouble("report.checkpoints is not looked for: $PLACE is not set");
  ASSERT_TRUE(bench.send(beat).ok());
  bench.tick();
  const std::string note = "rank 0: report.checkpoints is not looked for: $PLACE is not set";
  EXPECT_THAT(bench.job(id).notes(), ElementsAre(note));
  fail(id);
  bench.restart();
  EXPECT_EQ(bench.state(id), "failed");
  EXPECT_THAT(bench.job(id).notes(), ElementsAre(note)) << "rank 0 has ended";
}

TEST_P(Progress, ALimitThatIsSetIsShownAndAHangIsSuspectedAfterHalfOfIt) {
  auto request = command_request("a");
  request.mutable_spec()->mutable_liveness()->set_hung_after_ms(60'000);
  const auto id = bench.submit(request);
  bench.heartbeat({id, 1}, 0, 5);
  bench.pass(20s, [&] { bench.heartbeat({id, 1}, 0, 5); });
  EXPECT_EQ(bench.why(id).status(), "running");
  EXPECT_THAT(bench.why(id).notes(), ElementsAre());
  bench.pass(20s, [&] { bench.heartbeat({id, 1}, 0, 5); });
  EXPECT_EQ(bench.why(id).status(), "running, suspected");
  EXPECT_EQ(bench.job(id).hang_limit(), "1 min, as liveness.hung_after says, in section step");
}

TEST_P(Progress, KeysThatCanHaveNoEffectAreNamedUntilTheyHave) {
  auto request = command_request("a");
  request.mutable_spec()->mutable_liveness()->set_hung_after_ms(5000);
  request.mutable_spec()->mutable_liveness()->set_join_within_ms(7000);
  const auto id = bench.submit(request);
  const std::string hung = "liveness.hung_after has no effect while this program reports no steps";
  const std::string join = "liveness.join_within has no effect on a program of your own";
  EXPECT_THAT(bench.job(id).notes(), ElementsAre(hung, join));
  EXPECT_THAT(bench.why(id).notes(), ElementsAre(hung, join));
  bench.heartbeat({id, 1}, 0, 1);
  bench.tick();
  EXPECT_THAT(bench.job(id).notes(), ElementsAre(join));
  bench.pass(5s, [&] { bench.heartbeat({id, 1}, 0, 1); });
  EXPECT_EQ(bench.attempt(id, 1).cause(), "rank_hung");
  EXPECT_THAT(bench.job(bench.submit(command_request("b"))).notes(), ElementsAre());
  EXPECT_THAT(bench.job(bench.submit(recipe_request("c"))).notes(), ElementsAre());
}

TEST_P(Progress, AStoppedProgramIsSilent) {
  const auto id = bench.submit(command_request("a"));
  bench.executor().freeze({id, 1}, 0);
  bench.pass(4s);
  EXPECT_EQ(bench.attempt(id, 1).cause(), "rank_silent");
  EXPECT_THAT(bench.attempt(id, 1).reason(), HasSubstr("(its process is stopped)"));
}

TEST_P(Progress, RanksAreToldWhyTheyAreStopped) {
  const auto lost = bench.submit(command_request("a", 2));
  bench.executor().end({lost, 1}, 1, {0, 9});
  bench.tick();
  ASSERT_EQ(bench.machine->stop_count({lost, 1}), 1U);
  EXPECT_EQ(bench.machine->get({lost, 1}).stops[0].why, "peer_failed");
  EXPECT_FALSE(bench.machine->get({lost, 1}).stops[0].save);
  const auto cancelled = bench.submit(command_request("b"));
  ASSERT_TRUE(bench.controller().cancel(cancelled, "ada").ok());
  bench.tick();
  EXPECT_EQ(bench.machine->get({cancelled, 1}).stops[0].why, "cancelled");
  EXPECT_TRUE(bench.machine->get({cancelled, 1}).stops[0].save);
  muster::v1::TaskRequest task;
  task.mutable_key()->set_job_id(lost);
  task.mutable_key()->set_attempt(1);
  const auto answer = bench.controller().task(task, bench.token({lost, 1}));
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer.value().directive(), muster::v1::DIRECTIVE_STOP);
  EXPECT_EQ(answer.value().stop_why(), "peer_failed");
}

TEST_P(Progress, TheReasonHoldsTheProgramsError) {
  const auto id = bench.submit(command_request("a"));
  bench.executor().tell(id, core::RankExited{1, 0, {1, 0}, false, "", "ValueError: nan"});
  bench.tick();
  EXPECT_EQ(bench.attempt(id, 1).reason(), "rank 0 exited with 1: ValueError: nan");
  EXPECT_EQ(bench.attempt(id, 1).error(), "ValueError: nan");
}

// The code that finds the words and the code that judges them may not include each other.
TEST(ProgramsWords, ThatNeedNotBeTheErrorAreKnownAsSuch) {
  EXPECT_TRUE(core::is_surely_an_error(agent::watch::error_line("ValueError: nan\n")));
  EXPECT_TRUE(core::is_surely_an_error(agent::watch::error_line("train.py: error: no --lr\n")));
  EXPECT_FALSE(core::is_surely_an_error(agent::watch::error_line("train.py: error: no --lr\nstep 7\n")));
  EXPECT_FALSE(core::is_surely_an_error(agent::watch::error_line("ERROR:root:no shard left\n")));
  EXPECT_FALSE(core::is_surely_an_error(agent::watch::error_line("config file missing\n")));
}

}  // namespace
}  // namespace service::testing
