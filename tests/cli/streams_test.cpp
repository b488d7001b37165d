// Goal: a lost connection is not a job's end, and no row is lost or printed twice. Ctrl-C does not touch the job.
// Method: the real program with a real gRPC server that breaks streams or stops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>

#include "tests/cli/fake_controller.h"
#include "tests/places.h"

namespace test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A `muster` in the background.
class Running {
 public:
  Running(FakeController& fake, std::vector<std::string> arguments)
      : out_(fake.folder().path() / "out"), err_(fake.folder().path() / "err") {
    arguments.insert(arguments.begin(), ::test::built_program("muster"));
    process_ = std::make_unique<Process>(arguments, fake.environment(), out_, err_);
  }
  Process& process() { return *process_; }
  std::string out() const { return read_file(out_); }
  std::string err() const { return read_file(err_); }
  bool says(const std::string& text) {
    return eventually([&] { return (out() + err()).find(text) != std::string::npos; }, 20s);
  }

 private:
  std::filesystem::path out_, err_;
  std::unique_ptr<Process> process_;
};

void add_job(FakeController& fake, const std::string& state) {
  fake.with([&](FakeState& s) { s.jobs.push_back(sample_job(1, state)); });
}
void set_state(FakeController& fake, const std::string& state) {
  fake.with([&](FakeState& s) { s.jobs[0].set_state(state); });
}
int occurrences(const std::string& text, const std::string& part) {
  int count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// The timeout is 0, but the job has ended before.
TEST(Wait, NoTimeAtAllIsEnoughForAJobThatHasEnded) {
  FakeController fake;
  add_job(fake, "failed");
  const auto done = fake.muster({"wait", "1", "--timeout", "0s"});
  EXPECT_EQ(done.exit, 1) << done.err;
  EXPECT_THAT(done.err, testing::Not(HasSubstr("goes on")));
}

TEST(Wait, AFailureOnSlurmNamesWhatSlurmWrote) {
  FakeController fake;
  add_job(fake, "failed");
  fake.with([](FakeState& s) {
    s.jobs[0].set_log_folder("/data/jobs/1/attempt-2/logs");
    s.jobs[0].mutable_attempts()->rbegin()->set_scheduler_job("12");
  });
  EXPECT_THAT(fake.muster({"wait", "1"}).err, HasSubstr("/data/jobs/1/attempt-2/slurm.log"));
  EXPECT_THAT(fake.muster({"show", "1"}).out, HasSubstr("/data/jobs/1/attempt-2/slurm.log"));
  fake.with([](FakeState& s) { s.jobs[0].mutable_attempts()->rbegin()->set_scheduler_job("12_3"); });
  EXPECT_THAT(fake.muster({"show", "1"}).out, testing::Not(HasSubstr("slurm.log"))) << "it is the array's";
}

/// Adds a job on Slurm that failed before any rank had a process, with Slurm's log.
void add_unstarted(FakeController& fake, const std::string& log) {
  add_job(fake, "failed");
  fake.with([&](FakeState& s) {
    auto& newest = *s.jobs[0].mutable_attempts()->rbegin();
    newest.set_scheduler_job("12");
    newest.set_state("ended");
    newest.set_cause("failed");
    for (auto& rank : *s.jobs[0].mutable_ranks()) rank.set_pid(0);
    s.slurm_logs.emplace_back().set_attempt(2);
    s.slurm_logs.back().set_data(log);
  });
}

TEST(Wait, WhatFailedBeforeTheRanksIsQuotedFromSlurmsLog) {
  FakeController fake;
  add_unstarted(fake, "one\ntwo\n\nthree\nfour\nfive\nmodule: command not found\n");
  for (const auto& said : {fake.muster({"wait", "1"}).err, fake.muster({"show", "1"}).out}) {
    EXPECT_THAT(said, AllOf(HasSubstr("| two\n"), HasSubstr("| module: command not found\n"))) << said;
    EXPECT_THAT(said, Not(HasSubstr("| one"))) << "the last five";
  }
  fake.with([](FakeState& s) {
    ASSERT_EQ(s.log_requests.size(), 2U);
    for (const auto& request : s.log_requests) {
      EXPECT_EQ(request.attempt(), 2U);
      EXPECT_EQ(request.tail_lines(), 5U);
      EXPECT_FALSE(request.follow());
    }
  });
}

TEST(Wait, AQuotedLogCantWriteToTheTerminalWhatItLikes) {
  FakeController fake;
  add_unstarted(fake,
                "\x1b[31mred\x1b[0m \x1b]0;title\a\xc2\x9b"
                "2J\xff \u202Ereversed é\n" +
                    std::string(5000, 'x') + "\n");
  const auto said = fake.muster({"wait", "1"}).err;
  EXPECT_THAT(said, HasSubstr("  | red ]0;title  2J?  reversed é\n"));
  EXPECT_THAT(said, AllOf(HasSubstr(std::string(190, 'x')), Not(HasSubstr(std::string(201, 'x')))));
}

TEST(Wait, ALogThatRanksWroteToIsNotQuoted) {
  FakeController fake;
  add_unstarted(fake, "noise\n");
  fake.with([](FakeState& s) { s.jobs[0].mutable_ranks(1)->set_pid(77); });
  EXPECT_THAT(fake.muster({"wait", "1"}).err, Not(HasSubstr("noise")));
  fake.with([](FakeState& s) {
    s.jobs[0].mutable_ranks(1)->set_pid(0);
    s.jobs[0].mutable_attempts(1)->set_cause("cancelled");
  });
  EXPECT_THAT(fake.muster({"show", "1"}).out, Not(HasSubstr("noise")));
}

TEST(Logs, AnEmptyLogIsSaidOnStderrWithTheCommandThatShowsSlurms) {
  FakeController fake;
  add_unstarted(fake, "module: command not found\n");
  for (const char* follow : {"--follow", "--tail=5"}) {
    const auto empty = fake.muster({"logs", "1", follow});
    EXPECT_EQ(empty.exit, 0);
    EXPECT_EQ(empty.out, "");
    EXPECT_EQ(
        empty.err,
        "muster: the log of job 1 is empty; for the output of Slurm and of the lines before the ranks: muster logs 1 "
        "--slurm\n");
  }
  const auto slurm = fake.muster({"logs", "1", "--slurm"});
  EXPECT_EQ(slurm.out, "module: command not found\n");
  EXPECT_EQ(slurm.err, "");
  EXPECT_EQ(fake.muster({"logs", "1", "--slurm", "--rank", "1"}).exit, 2);
  fake.with([](FakeState& s) { s.jobs[0].mutable_attempts()->rbegin()->clear_scheduler_job(); });
  EXPECT_EQ(fake.muster({"logs", "1", "--rank", "1"}).err, "muster: the log of rank 1 of job 1 is empty\n");
  fake.with([](FakeState& s) { s.jobs[0].clear_attempts(); });
  EXPECT_THAT(fake.muster({"logs", "1"}).err, HasSubstr("no attempt has started"));
}

TEST(Wait, ReturnsTheJobsResult) {
  const std::pair<const char*, int> results[] = {{"succeeded", 0}, {"failed", 1}, {"cancelled", 1}};
  for (const auto& [state, exit] : results) {
    FakeController fake;
    add_job(fake, "running");
    Running wait(fake, {"wait", "1"});
    ASSERT_TRUE(eventually([&] { return fake.get<int>([](FakeState& s) { return s.watchers; }) == 1; }, 20s));
    set_state(fake, state);
    EXPECT_EQ(wait.process().wait(20s), exit);
    EXPECT_THAT(wait.err(), HasSubstr(std::string("job 1 ") + state));
    EXPECT_EQ(wait.out(), "");
  }
}

TEST(Wait, OutlivesAControllerThatGoesAndComesBack) {
  FakeController fake;
  add_job(fake, "running");
  Running wait(fake, {"wait", "1", "--json"});
  ASSERT_TRUE(eventually([&] { return fake.get<int>([](FakeState& s) { return s.watchers; }) == 1; }, 20s));
  fake.stop();
  ASSERT_TRUE(wait.says("lost contact with the controller"));
  EXPECT_FALSE(wait.process().wait(700ms)) << "it tries for ever";
  set_state(fake, "succeeded");
  fake.start();
  EXPECT_EQ(wait.process().wait(20s), 0) << wait.err();
  EXPECT_EQ(occurrences(wait.err(), "lost contact"), 1);
  EXPECT_THAT(wait.err(), HasSubstr("the controller is back"));
  EXPECT_EQ(nlohmann::json::parse(wait.out()).at("state"), "succeeded");
}

TEST(Wait, TheTimeoutHoldsWithAndWithoutAController) {
  FakeController fake;
  add_job(fake, "running");
  EXPECT_EQ(fake.muster({"wait", "1", "--timeout", "200ms"}).exit, 124);
  const auto watchers = [&] { return fake.get<int>([](FakeState& s) { return s.watchers; }); };
  ASSERT_TRUE(eventually([&] { return watchers() == 0; }, 20s)) << "or the first one's is taken for the second's";
  Running wait(fake, {"wait", "1", "--timeout", "2s"});
  ASSERT_TRUE(eventually([&] { return watchers() == 1; }, 20s));
  fake.stop();
  EXPECT_EQ(wait.process().wait(20s), 124);
  EXPECT_THAT(wait.err(), HasSubstr("job 1 goes on"));
}

TEST(Submit, WaitsForAControllerThatIsAboutToStart) {
  FakeController fake;
  fake.stop();
  write_file(fake.folder().path() / "job.toml", "name = \"a\"\ncommand = [\"true\"]\n");
  Running submit(fake, {"submit", fake.folder().path() / "job.toml"});
  ASSERT_TRUE(submit.says("trying for 20 s"));
  fake.start();
  EXPECT_EQ(submit.process().wait(20s), 0) << submit.err();
  EXPECT_EQ(submit.out(), "1\n");
}

TEST(Follow, ControlCLeavesTheJobAloneAndSaysHowToGoOn) {
  FakeController fake;
  add_job(fake, "running");
  Running wait(fake, {"wait", "1"});
  ASSERT_TRUE(eventually([&] { return fake.get<int>([](FakeState& s) { return s.watchers; }) == 1; }, 20s));
  wait.process().signal(SIGINT);
  EXPECT_EQ(wait.process().wait(20s), 130);
  EXPECT_THAT(wait.err(), AllOf(HasSubstr("job 1 goes on"), HasSubstr("muster cancel 1")));
}

/// A line of a log, an event and a row of metrics, for whoever follows.
void add_one_of_each(FakeController& fake) {
  fake.with([](FakeState& s) {
    s.logs.emplace_back().set_data("a first line\n");
    s.events.emplace_back().set_id(1);
    s.events.back().set_text("a first line");
    s.metrics.emplace_back().set_attempt(1);
    s.metrics.back().set_step(77);
  });
}

TEST(Follow, EveryCommandThatFollowsEndsWith130AtControlC) {
  FakeController fake;
  add_job(fake, "running");
  add_one_of_each(fake);
  for (const auto& [command, shows] :
       {std::pair{"logs", "a first line"}, {"events", "a first line"}, {"metrics", "77"}}) {
    Running following(fake, {command, "1", "-f"});
    ASSERT_TRUE(following.says(shows)) << command;
    following.process().signal(SIGINT);
    EXPECT_EQ(following.process().wait(20s), 130) << command;
    std::filesystem::remove(fake.folder().path() / "out");
  }
}

TEST(Follow, EveryCommandThatFollowsWaitsItsTurn) {
  FakeController fake;
  add_job(fake, "succeeded");
  add_one_of_each(fake);
  for (const auto& [command, more, shows] : {std::tuple{"logs", "-f", "a first line"},
                                             {"events", "-f", "a first line"},
                                             {"metrics", "-f", "77"},
                                             {"wait", "--timeout=60s", "succeeded"}}) {
    fake.with([](FakeState& s) { s.without_place = 3; });
    const auto done = fake.muster({command, "1", more});
    EXPECT_EQ(done.exit, 0) << command << done.err;
    EXPECT_THAT(done.out + done.err, HasSubstr(shows)) << command;
    EXPECT_EQ(occurrences(done.err, "waiting for a turn"), 1) << command << done.err;
    EXPECT_EQ(fake.get<int>([](FakeState& s) { return s.without_place; }), 0) << command;
  }
}

void add_logs(FakeController& fake, const std::vector<std::tuple<int, int, std::string>>& chunks) {
  fake.with([&](FakeState& s) {
    for (const auto& [attempt, rank, data] : chunks) {
      auto& chunk = s.logs.emplace_back();
      chunk.set_attempt(static_cast<std::uint32_t>(attempt));
      chunk.set_rank(static_cast<std::uint32_t>(rank));
      chunk.set_data(data);
    }
  });
}

TEST(Follow, ATrainingsProgressIsTold) {
  FakeController fake;
  fake.with([](FakeState& s) { s.submitted_state = "running"; });
  write_file(fake.folder().path() / "job.toml", "name = \"a\"\n[train]\nsteps = 150\n");
  Running submit(fake, {"submit", "--follow", fake.folder().path() / "job.toml"});
  ASSERT_TRUE(submit.says("job 1 running, attempt 2, step 50/150, loss 2.871"));
  const auto watched = [&] { return fake.get<int>([](FakeState& s) { return s.watched; }); };
  const int before = watched();
  fake.with([](FakeState& s) { s.jobs[0].set_step(51); });
  ASSERT_TRUE(eventually([&] { return watched() > before; }, 20s));
  fake.with([](FakeState& s) { s.jobs[0].set_step(80); });
  ASSERT_TRUE(submit.says("step 80/150"));
  set_state(fake, "failed");
  EXPECT_EQ(submit.process().wait(20s), 1);
  EXPECT_EQ(submit.out(), "1\n");
  EXPECT_THAT(submit.err(), AllOf(HasSubstr("job 1 failed"), Not(HasSubstr("step 51/")))) << "every tenth is enough";
}

TEST(Follow, StepsOfAProgramThatPrintsNothingAreTold) {
  FakeController fake;
  fake.with([](FakeState& s) { s.submitted_state = "running"; });
  add_logs(fake, {{2, 0, "it begins\n"}});
  write_file(fake.folder().path() / "job.toml", "name = \"a\"\ncommand = [\"/bin/true\"]\n");
  Running submit(fake, {"submit", "--follow", fake.folder().path() / "job.toml"});
  ASSERT_TRUE(submit.says("it begins"));
  EXPECT_THAT(submit.err(), Not(HasSubstr("step 50"))) << "the program prints";
  int step = 50;
  ASSERT_TRUE(eventually(
      [&] {
        fake.with([&](FakeState& s) { s.jobs[0].set_step(++step); });
        return submit.err().find("job 1 running, attempt 2, step ") != std::string::npos;
      },
      30s));
  EXPECT_EQ(occurrences(submit.err(), "job 1 running"), 1) << "a line every ten seconds is enough";
  set_state(fake, "succeeded");
  EXPECT_EQ(submit.process().wait(20s), 0);
}

TEST(Follow, ASuspicionAndItsEndAreToldToWhoeverWaits) {
  FakeController fake;
  fake.with([](FakeState& s) { s.submitted_state = "running"; });
  add_logs(fake, {{2, 0, "it begins\n"}});
  write_file(fake.folder().path() / "job.toml", "name = \"a\"\ncommand = [\"/bin/true\"]\n");
  const auto job_file = (fake.folder().path() / "job.toml").string();
  int job = 0;
  for (const auto& words :
       {std::vector<std::string>{"submit", "--follow", job_file}, {"submit", "--wait", job_file}, {"wait", "2"}}) {
    SCOPED_TRACE(words.front() + words.back());
    const auto jobs = [&] { return fake.get<std::size_t>([](FakeState& s) { return s.jobs.size(); }); };
    const auto number = words.front() == "wait" ? job : ++job;
    const auto change = [&](const std::string& state, const std::string& status, const std::string& reason) {
      fake.with([&](FakeState& s) {
        auto& changed = s.jobs.at(static_cast<std::size_t>(number - 1));
        changed.set_state(state);
        changed.set_status(status);
        changed.set_reason(reason);
      });
    };
    if (words.front() == "wait") change("running", "running", "attempt 2: running");
    Running waits(fake, words);
    ASSERT_TRUE(eventually([&] { return jobs() == static_cast<std::size_t>(job); }, 20s));
    const auto name = "muster: job " + std::to_string(number) + " running";
    change("running", "running, suspected", "attempt 2: rank 1 made no step for 12 s");
    ASSERT_TRUE(waits.says(name + ", suspected: rank 1 made no step for 12 s\n")) << waits.err();
    change("running", "running", "attempt 2: progress again after 20 s");
    ASSERT_TRUE(waits.says(name + ": progress again after 20 s\n")) << waits.err();
    change("succeeded", "succeeded", "");
    EXPECT_EQ(waits.process().wait(20s), 0);
    EXPECT_EQ(occurrences(waits.err(), name), 2) << waits.err();
  }
}

TEST(Follow, AWatchedListIsPrintedAgainWhenItHasChangedAndOutlivesTheController) {
  FakeController fake;
  add_job(fake, "running");
  Running list(fake, {"list", "-w", "--json"});
  const auto looks = [&] { return fake.get<std::size_t>([](FakeState& s) { return s.list_requests.size(); }); };
  ASSERT_TRUE(eventually([&] { return looks() >= 3; }, 20s));
  EXPECT_EQ(occurrences(list.out(), "\n"), 1) << "nothing has changed";
  fake.stop();
  ASSERT_TRUE(list.says("lost contact"));
  set_state(fake, "stopping");
  fake.start();
  ASSERT_TRUE(list.says("stopping"));
  EXPECT_EQ(occurrences(list.out(), "\n"), 2);
  EXPECT_THAT(list.err(), HasSubstr("the controller is back"));
  list.process().signal(SIGINT);
  EXPECT_EQ(list.process().wait(20s), 130);
}

TEST(Follow, ShowsPlainProgressLinesOffATerminal) {
  FakeController fake;
  add_job(fake, "running");
  write_file(fake.folder().path() / "job.toml", "name = \"a\"\n[train]\nsteps = 150\n");
  const auto followed = fake.muster({"submit", "--follow", fake.folder().path() / "job.toml"});
  EXPECT_EQ(followed.exit, 0) << followed.err;
  EXPECT_EQ(followed.out, "2\n");
  Running list(fake, {"list", "-w"});
  ASSERT_TRUE(list.says("running"));
  set_state(fake, "stopping");
  ASSERT_TRUE(list.says("stopping"));
  list.process().signal(SIGINT);
  EXPECT_EQ(list.process().wait(20s), 130);
  EXPECT_THAT(list.out() + followed.err, AllOf(Not(HasSubstr("\r")), Not(HasSubstr("\x1b"))));
}

TEST(Logs, LinesThatWereSeenToComeCarryTheirTime) {
  FakeController fake;
  add_job(fake, "succeeded");
  add_logs(fake, {{1, 0, "old\nhal"}, {1, 0, "f\n"}, {1, 1, "new\n"}});
  fake.with([](FakeState& s) {
    s.logs[1].set_seen_at_ms(1'700'000'000'123);
    s.logs[2].set_seen_at_ms(1'700'000'001'004);
  });
  EXPECT_EQ(fake.muster({"logs", "1", "-f", "--timestamps"}).out,
            "-                        [rank 0] old\n2023-11-14T22:13:20.123Z [rank 0] half\n"
            "2023-11-14T22:13:21.004Z [rank 1] new\n");
  const auto rows = fake.muster({"logs", "1", "-f", "--timestamps", "--json"}).out;
  EXPECT_THAT(rows, AllOf(HasSubstr(R"("text":"old","seen_at":null})"),
                          HasSubstr(R"("text":"new","seen_at":"2023-11-14T22:13:21.004Z"})")));
  const auto refused = fake.muster({"logs", "1", "--timestamps"});
  EXPECT_EQ(refused.exit, 2);
  EXPECT_THAT(refused.err, HasSubstr("--timestamps requires"));
}

TEST(Logs, NameTheRankOnceAndJoinLinesThatCameInPieces) {
  FakeController fake;
  add_job(fake, "succeeded");
  add_logs(fake, {{1, 0, "one\ntw"}, {1, 1, "[rank 1] own\n"}, {1, 0, "o\n"}, {1, 0, "no end"}});
  EXPECT_EQ(fake.muster({"logs", "1"}).out, "[rank 0] one\n[rank 1] own\n[rank 0] two\n[rank 0] no end\n");
  const auto rows = nlohmann::json::parse(fake.muster({"logs", "1", "--json"}).out);
  EXPECT_EQ(rows.at(0), (nlohmann::json{{"api_version", "v1"}, {"attempt", 1}, {"rank", 0}, {"text", "one"}}));
  const auto quiet = fake.muster({"logs", "1", "--rank", "0", "--tail", "5", "--attempt", "1"});
  fake.with([](FakeState& s) {
    EXPECT_EQ(s.log_requests.back().rank(), 0U);
    EXPECT_TRUE(s.log_requests.back().has_rank());
    EXPECT_EQ(s.log_requests.back().tail_lines(), 5U);
    EXPECT_EQ(s.log_requests.back().attempt(), 1U);
  });
}

TEST(Logs, ABrokenStreamGoesOnWhereItWasWithoutDoubledLines) {
  FakeController fake;
  add_job(fake, "succeeded");
  add_logs(fake, {{1, 0, "one\n"}, {1, 1, "uno\n"}, {1, 0, "two\nthr"}, {1, 0, "ee\n"}, {2, 0, "again\n"}});
  fake.with([](FakeState& s) { s.break_streams_after = 3; });
  const auto done = fake.muster({"logs", "1", "-f"});
  EXPECT_EQ(done.exit, 0) << done.err;
  EXPECT_EQ(done.out, "[rank 0] one\n[rank 1] uno\n[rank 0] two\n[rank 0] three\n[rank 0] again\n");
  EXPECT_THAT(done.err, AllOf(HasSubstr("lost contact"), HasSubstr("--- attempt 2 ---")));
  fake.with([](FakeState& s) {
    ASSERT_GE(s.log_requests.size(), 2U);
    const auto& again = s.log_requests[1];
    EXPECT_EQ(again.attempt(), 0U) << "those after it are to come too";
    ASSERT_EQ(again.from_size(), 2) << "of the attempt that was being read";
    EXPECT_EQ(again.from(0).attempt(), 1U);
    EXPECT_EQ(again.from(0).offset(), 11U) << "one, two and half of three";
    EXPECT_EQ(again.from(1).rank(), 1U);
    EXPECT_EQ(again.from(1).offset(), 4U);
  });
}

TEST(Logs, ATailThatBreaksGoesOnWhereItWas) {
  for (const auto& [broken_after, offset, tail] : {std::tuple{3, 8U, 3U}, {5, 5U, 0U}}) {
    FakeController fake;
    add_job(fake, "succeeded");
    add_logs(fake,
             {{1, 0, ""}, {1, 0, "one\n"}, {1, 0, "two\n"}, {1, 0, "three\n"}, {2, 0, "four\n"}, {2, 0, "five\n"}});
    fake.with([&](FakeState& s) { s.break_streams_after = broken_after; });
    const auto done = fake.muster({"logs", "1", "-f", "--tail", "3", "--rank", "0"});
    EXPECT_EQ(done.exit, 0) << done.err;
    EXPECT_EQ(done.out, "one\ntwo\nthree\nfour\nfive\n") << "and one rank is not named";
    fake.with([&](FakeState& s) {
      ASSERT_EQ(s.log_requests.size(), 2U);
      const auto& again = s.log_requests[1];
      ASSERT_EQ(again.from_size(), 1);
      EXPECT_EQ(again.from(0).offset(), offset);
      EXPECT_EQ(again.tail_lines(), tail) << "ranks of a later attempt are read from their beginning";
    });
  }
}

TEST(Events, AndMetricsGoOnAfterABrokenStream) {
  FakeController fake;
  add_job(fake, "succeeded");
  fake.with([](FakeState& s) {
    for (int i = 1; i <= 5; ++i) {
      s.events.emplace_back().set_id(i);
      s.events.back().set_text("event " + std::to_string(i));
      s.metrics.emplace_back().set_attempt(i <= 3 ? 1 : 2);
      s.metrics.back().set_step(i <= 3 ? i : i - 2);  // the steps go back once
    }
    s.break_streams_after = 3;
  });
  const auto steps_of = [](const std::string& text, const char* key) {
    std::vector<int> values;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) values.push_back(nlohmann::json::parse(line).at(key).get<int>());
    return values;
  };
  EXPECT_THAT(steps_of(fake.muster({"events", "1", "-f", "--json"}).out, "id"), testing::ElementsAre(1, 2, 3, 4, 5));
  fake.with([](FakeState& s) { s.break_streams_after = 4; });
  EXPECT_THAT(steps_of(fake.muster({"metrics", "1", "-f", "--json"}).out, "step"), testing::ElementsAre(1, 2, 3, 2, 3));
  fake.with([](FakeState& s) { s.break_streams_after = 2; });
  EXPECT_EQ(fake.muster({"events", "1"}).exit, 4) << "without -f an incomplete answer is an error";
}

}  // namespace
}  // namespace test
