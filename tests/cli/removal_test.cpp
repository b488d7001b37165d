// Goal: jobs are removed only when a person wants it, and the freed space is reported.
// Method: prune's pure choice of jobs; the real program with a fake controller, in a pipe and on a terminal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "cli/list.h"
#include "tests/cli/fake_controller.h"
#include "tests/places.h"

namespace test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kHourMs = 3'600'000;

/// Ended jobs, newest first. Job 5 ended an hour ago, job 4 two hours ago, and so on. Even jobs are ben's.
std::vector<muster::v1::Job> ended_jobs() {
  std::vector<muster::v1::Job> jobs;
  for (int i = 5; i >= 1; --i) {
    auto& job = jobs.emplace_back();
    job.set_id(i);
    job.set_user(i % 2 == 0 ? "ben" : "ada");
    job.set_ended_at("1970-01-01T0" + std::to_string(i) + ":00:00Z");
  }
  return jobs;
}

TEST(Prune, TakesWhatIsOldAndNotAmongTheNewest) {
  const auto chosen = [](const cli::PruneRule& rule) { return cli::jobs_to_prune(ended_jobs(), rule, 6 * kHourMs); };
  const std::chrono::milliseconds three_hours(3 * kHourMs);
  EXPECT_THAT(chosen({.older_than = three_hours}), ElementsAre(3, 2, 1));
  EXPECT_THAT(chosen({.keep_last = 2}), ElementsAre(3, 2, 1));
  EXPECT_THAT(chosen({.older_than = three_hours, .keep_last = 4}), ElementsAre(1));
  EXPECT_THAT(chosen({.keep_last = 1, .user = "ada"}), ElementsAre(3, 1)) << "the newest of ada's own";
  EXPECT_THAT(chosen({.keep_last = 9}), IsEmpty());
  EXPECT_THAT(chosen({.keep_last = 0}), ElementsAre(5, 4, 3, 2, 1));
}

void add_jobs(FakeController& fake, const std::vector<std::string>& states) {
  fake.with([&](FakeState& s) {
    for (const auto& state : states) {
      auto& job = s.jobs.emplace_back(sample_job(static_cast<std::int64_t>(s.jobs.size()) + 1, state));
      job.set_name("run");
      job.set_ended_at("2026-11-20T19:49:55.123Z");
      job.mutable_sweep()->set_sweep("s1");
    }
  });
}

std::vector<std::string> asked(FakeController& fake) {
  return fake.get<std::vector<std::string>>([](FakeState& s) { return std::exchange(s.asked, {}); });
}

TEST(Rm, RemovesTheNamedJobsAndTellsWhatThatFrees) {
  FakeController fake;
  add_jobs(fake, {"succeeded", "running", "failed"});
  const auto plan = fake.muster({"rm", "--dry-run", "1", "3"});
  EXPECT_EQ(plan.exit, 0) << plan.err;
  EXPECT_EQ(plan.out,
            "job 1 would be removed: run, succeeded, 3.0 GiB\njob 3 would be removed: run, failed, 3.0 GiB\n"
            "2 jobs would be removed, 6.0 GiB\n");
  EXPECT_THAT(asked(fake), IsEmpty());
  const auto some = fake.muster({"rm", "1", "2", "9"});
  EXPECT_EQ(some.exit, 2) << "one that goes on is trouble";
  EXPECT_EQ(some.out, "job 1 removed: run, succeeded, 3.0 GiB\n");
  EXPECT_EQ(some.err, "muster rm: job 2 is running\nmuster rm: there is no job 9\n");
  EXPECT_THAT(asked(fake), ElementsAre("remove 1 by someone"));
  const auto gone = fake.muster({"rm", "1"});
  EXPECT_EQ(gone.exit, 3);
  EXPECT_EQ(gone.out, "") << "what was refused is told on stderr";
  const auto json = nlohmann::json::parse(fake.muster({"rm", "3", "--json"}).out);
  EXPECT_EQ(json.at("removed").at(0).at("job_id"), 3);
  EXPECT_EQ(json.at("bytes"), std::int64_t{3} << 30);
  EXPECT_EQ(json.at("dry_run"), false);
  EXPECT_EQ(fake.muster({"rm"}).exit, 2);
  EXPECT_EQ(fake.muster({"rm", "1", "--sweep", "s1"}).exit, 2);
}

TEST(Rm, OfASweepThoseThatHaveEnded) {
  FakeController fake;
  add_jobs(fake, {"succeeded", "running", "failed"});
  const auto done = fake.muster({"rm", "--sweep", "s1"});
  EXPECT_EQ(done.exit, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("2 jobs removed, 6.0 GiB\n"));
  EXPECT_EQ(done.err, "muster rm: 1 job can't be removed now, such as: job 2 is running\n");
  EXPECT_EQ(fake.muster({"rm", "--sweep", "s9"}).exit, 3);
}

TEST(Prune, WantsARuleAndKeepsToOnesOwnJobs) {
  FakeController fake;
  add_jobs(fake, {"succeeded", "failed"});
  const auto refused = fake.muster({"prune"});
  EXPECT_EQ(refused.exit, 2);
  EXPECT_THAT(refused.err, HasSubstr("want --older-than or --keep-last"));
  EXPECT_THAT(fake.muster({"prune", "--older-than", "yesterday"}).err, HasSubstr("want a duration such as 30d"));
  // The jobs belong to a user who cannot be the one that runs this test.
  fake.with([](FakeState& s) {
    for (auto& job : s.jobs) job.set_user("nobody-of-that-name");
  });
  EXPECT_EQ(fake.muster({"prune", "--keep-last", "0"}).out, "0 jobs removed, 0 B\n");
  EXPECT_THAT(fake.muster({"prune", "--older-than", "1h", "--all-users", "--dry-run"}).out,
              HasSubstr("2 jobs would be removed"));
  EXPECT_THAT(asked(fake), IsEmpty());
  EXPECT_THAT(fake.muster({"prune", "--older-than", "1h", "--all-users", "--state", "failed"}).exit, 0);
  fake.with([](FakeState& s) { EXPECT_THAT(s.list_requests.back().states(), ElementsAre("failed")); });
}

/// The text that a terminal shows of `muster rm 1` if a person types `answer`.
std::string rm_on_terminal(FakeController& fake, const std::vector<std::string>& options, const std::string& answer) {
  std::vector<std::string> words{::test::built_program("muster"), "rm", "1"};
  words.insert(words.end(), options.begin(), options.end());
  std::vector<std::string> variables;
  for (const auto& [name, value] : fake.environment()) variables.push_back(name + "=" + value);
  std::vector<char*> argv, envp;
  for (auto& word : words) argv.push_back(word.data());
  for (auto& variable : variables) envp.push_back(variable.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  std::string screen;
  char buffer[4096];
  bool answered = false;
  for (ssize_t got = 0; (got = read(terminal, buffer, sizeof buffer)) > 0;) {
    screen.append(buffer, static_cast<std::size_t>(got));
    if (answered || screen.find("[y/N]") == std::string::npos) continue;
    answered = write(terminal, answer.data(), answer.size()) == static_cast<ssize_t>(answer.size());
  }
  close(terminal);
  waitpid(child, nullptr, 0);
  return screen;
}

TEST(Rm, OnATerminalItAsksBefore) {
  FakeController fake;
  add_jobs(fake, {"succeeded"});
  EXPECT_THAT(
      rm_on_terminal(fake, {}, "n\n"),
      AllOf(HasSubstr("Remove 1 job with metrics, logs and checkpoints (3.0 GiB)? This cannot be undone. [y/N]"),
            HasSubstr("nothing was removed")));
  EXPECT_THAT(asked(fake), IsEmpty());
  EXPECT_THAT(rm_on_terminal(fake, {}, "y\n"), HasSubstr("job 1 removed"));
  EXPECT_THAT(asked(fake), ElementsAre("remove 1 by someone"));
  add_jobs(fake, {"succeeded"});
  EXPECT_THAT(rm_on_terminal(fake, {"--yes"}, ""), testing::Not(HasSubstr("[y/N]")));
}

}  // namespace
}  // namespace test
