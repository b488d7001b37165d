#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/fake_controller.h"
#include "tests/places.h"
#include "tests/system/process.h"

namespace test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string script_of(const std::string& shell) {
  return run({::test::built_program("muster"), "completion", shell}, {}, 10s).out;
}

/// Words that bash offers for the last of `words`, one a line.
std::string offered(const TemporaryFolder& folder, const std::string& words, int count) {
  write_file(folder.path() / "completion.bash", script_of("bash"));
  const auto program = "source " + (folder.path() / "completion.bash").native() + "; cd " + folder.path().native() +
                       "; COMP_WORDS=(" + words + "); COMP_CWORD=" + std::to_string(count) +
                       "; _muster; printf '%s\\n' \"${COMPREPLY[@]}\"";
  const auto done = run({"/bin/bash", "--norc", "-c", program}, {}, 10s);
  EXPECT_EQ(done.err, "");
  return done.out;
}

TEST(Completion, BashScriptParsesAndOffersCommandsOptionsAndValues) {
  TemporaryFolder folder;
  write_file(folder.path() / "check.bash", script_of("bash"));
  EXPECT_EQ(run({"/bin/bash", "-n", folder.path() / "check.bash"}, {}, 10s).exit, 0);
  EXPECT_EQ(offered(folder, "muster su", 1), "submit\n");
  EXPECT_EQ(offered(folder, "muster --address x:1 req", 3), "requeue\n");
  EXPECT_EQ(offered(folder, "muster list --st", 2), "--state\n");
  EXPECT_EQ(offered(folder, "muster list --state ca", 3), "cancelled\n");
  EXPECT_EQ(offered(folder, "muster completion z", 2), "zsh\n");
  EXPECT_EQ(offered(folder, "muster submit --set train.learn", 3), "train.learning_rate=\n");
  EXPECT_EQ(offered(folder, "muster submit --sweep train.learn", 3), "train.learning_rate=\n");
  EXPECT_EQ(offered(folder, "muster submit --executor de", 3), "debug\n");
  const std::string muster = ::test::built_program("muster");
  EXPECT_EQ(offered(folder, muster + " results --metric validation/lo", 3), "validation/loss\n")
      << "known without a controller";
  EXPECT_THAT(offered(folder, "muster submit --set ''", 3), AllOf(Not(HasSubstr("extends=")), HasSubstr("slurm.mem=")));
  write_file(folder.path() / "job.toml", "");
  write_file(folder.path() / "slurm_submit.sh", "");
  write_file(folder.path() / "notes.txt", "");
  EXPECT_THAT(offered(folder, "muster submit ''", 2),
              AllOf(HasSubstr("job.toml"), HasSubstr("slurm_submit.sh"), Not(HasSubstr("notes.txt"))));
}

TEST(Completion, EveryShellKnowsEveryCommand) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const auto script = script_of(shell);
    for (const char* command :
         {"submit",  "list",  "show", "logs",    "events", "metrics", "wait", "cancel", "requeue",    "hold",
          "release", "limit", "why",  "results", "trace",  "stacks",  "data", "doctor", "completion", "version"}) {
      EXPECT_THAT(script, HasSubstr(command)) << shell;
    }
    EXPECT_THAT(script, HasSubstr("follow")) << shell;
  }
}

TEST(Completion, ZshScriptHoldsBothSpellingsValuesFilesAndQuotedTexts) {
  const auto script = script_of("zsh");
  for (const char* line :
       {"'*-w[Keep showing the list until Ctrl-C]' \\\n        '*--watch[Keep showing the list until Ctrl-C]'",
        "'*--state[Only jobs in this state; may be repeated]:value:(pending queued running stopping ",
        "'*--limit[At most N changes, the newest]:value: '",
        "'*--address[The controller'\\''s address (default 127.0.0.1\\:7600)]:value: '",
        "'*--token-file[File with the controller'\\''s token]:file:_files'",
        "'*--set[Use this value, not the job file'\\''s; may be repeated]:value:(name= ",
        "'1:job file:_files -g \"*.(toml|sh)\"'", "'1:value:(bash zsh fish)'", "'show:Show jobs\\: why"}) {
    EXPECT_THAT(script, HasSubstr(line));
  }
}

TEST(Completion, FishScriptHoldsBothSpellingsValuesFilesAndQuotedTexts) {
  const auto script = script_of("fish");
  for (const char* line :
       {"complete -c muster -n 'not __fish_seen_subcommand_from up down status submit init plan data list top show ",
        " version' -a list -d 'List jobs, newest first'\n",
        "complete -c muster -n '__fish_seen_subcommand_from list' -s w -l watch -d 'Keep showing the list until "
        "Ctrl-C'\n",
        "complete -c muster -n '__fish_seen_subcommand_from list' -l state -x -a 'pending queued running stopping ",
        "complete -c muster -n '__fish_seen_subcommand_from list' -l limit -x -d ",
        "complete -c muster -n '__fish_seen_subcommand_from submit' -F\n",
        "complete -c muster -n '__fish_seen_subcommand_from submit' -l set -x -a 'name= ",
        "complete -c muster -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'\n",
        "complete -c muster -l address -x -d 'The controller\\'s address (default",
        "complete -c muster -l token-file -r -F -d "}) {
    EXPECT_THAT(script, HasSubstr(line));
  }
}

TEST(Completion, FishOffersCommandsAfterAnOptionsValueToo) {
  if (!std::filesystem::exists("/usr/bin/fish")) GTEST_SKIP() << "there is no fish here";
  TemporaryFolder folder;
  write_file(folder.path() / "muster.fish", script_of("fish"));
  const auto fish_offers = [&](const std::string& words) {
    const auto program = "source " + (folder.path() / "muster.fish").native() + "; complete -C '" + words + "'";
    return run({"/usr/bin/fish", "--no-config", "-c", program}, {{"HOME", folder.path()}}, 20s).out;
  };
  EXPECT_EQ(fish_offers("muster su"), "submit\tSubmit a job file, or a command\n");
  EXPECT_THAT(fish_offers("muster --address x:1 re"), HasSubstr("requeue\t"));
  EXPECT_THAT(fish_offers("muster list --state ca"), HasSubstr("cancelled\t"));
  EXPECT_THAT(fish_offers("muster list su"), Not(HasSubstr("submit")));
}

/// Adds a cancelled, a running and a held job. The first two belong to a sweep.
void add_some_jobs(FakeController& fake) {
  fake.with([](FakeState& s) {
    for (const char* state : {"cancelled", "running", "pending"}) {
      auto& job = s.jobs.emplace_back(sample_job(static_cast<std::int64_t>(s.jobs.size()) + 11, state));
      job.set_name("run");
      if (job.id() < 13) job.mutable_sweep()->set_sweep("s11");
    }
    s.jobs.back().set_held_by("ada");
  });
}

TEST(Completion, BashOffersTheJobsThatFitAndTheSweepsThereAre) {
  FakeController fake;
  add_some_jobs(fake);
  write_file(fake.folder().path() / "completion.bash", script_of("bash"));
  const auto offers = [&](const std::string& words, int count, const std::string& where = "") {
    const auto program = "source completion.bash; COMP_WORDS=(" + ::test::built_program("muster") + where + " " +
                         words + "); COMP_CWORD=" + std::to_string(count) +
                         "; _muster; printf '%s ' \"${COMPREPLY[@]}\"";
    auto variables = fake.environment();
    variables["PATH"] = "/usr/bin:/bin";
    if (!where.empty()) variables.erase("MUSTER_ADDRESS");
    return run({"/bin/bash", "--norc", "-c", "cd " + fake.folder().path().native() + "; " + program}, variables, 20s)
        .out;
  };
  EXPECT_EQ(offers("show ''", 2), "13 12 11 ") << "the newest first";
  EXPECT_EQ(offers("cancel 1", 2), "13 12 ");
  EXPECT_EQ(offers("cancel 12 ''", 3), "13 12 ");
  EXPECT_EQ(offers("release ''", 2), "13 ");
  EXPECT_EQ(offers("rm ''", 2), "11 ");
  EXPECT_EQ(offers("requeue ''", 2), "12 ");
  EXPECT_EQ(offers("cancel --sweep ''", 3), "s11 ");
  EXPECT_EQ(offers("results --sweep s", 3), "s11 ");
  EXPECT_EQ(offers("show --js", 2), "--json ");
  EXPECT_EQ(offers("show 1", 4, " --address " + fake.address()), "13 12 11 ") << "of the controller that is named";
  fake.stop();
  EXPECT_EQ(offers("show ''", 2), " ") << "nothing, and soon";
}

TEST(Completion, FishAndZshAskForJobsAndSweepsToo) {
  EXPECT_THAT(
      script_of("fish"),
      AllOf(HasSubstr("complete -c muster -n '__fish_seen_subcommand_from cancel' -k -a '(__muster_ask jobs cancel)'"),
            HasSubstr("-l sweep -x -a '(__muster_ask sweeps)'")));
  EXPECT_THAT(script_of("zsh"),
              AllOf(HasSubstr("'*:job:{_muster_ask jobs cancel}'"), HasSubstr("]:value:{_muster_ask sweeps}'")));
  EXPECT_THAT(script_of("zsh"), Not(HasSubstr("__complete:"))) << "it is for scripts, not for people";
  if (!std::filesystem::exists("/usr/bin/fish")) GTEST_SKIP() << "there is no fish here";
  FakeController fake;
  add_some_jobs(fake);
  write_file(fake.folder().path() / "muster.fish", script_of("fish"));
  auto variables = fake.environment();
  variables["PATH"] = std::filesystem::path(::test::built_program("muster")).parent_path().native() + ":/usr/bin:/bin";
  const auto program = "source " + (fake.folder().path() / "muster.fish").native() + "; complete -C 'muster cancel 1'";
  EXPECT_THAT(run({"/usr/bin/fish", "--no-config", "-c", program}, variables, 20s).out,
              HasSubstr("13\trun, pending\n12\trun, running\n"));
}

TEST(Completion, OldJobsAndSweepsAreOfferedBehindAnyNumberOfOthers) {
  FakeController fake;
  fake.with([](FakeState& s) {
    const auto add = [&s](const char* state, const std::string& name) -> muster::v1::Job& {
      auto& job = s.jobs.emplace_back(sample_job(static_cast<std::int64_t>(s.jobs.size()) + 1, state));
      job.set_name(name);
      return job;
    };
    add("failed", "old");
    for (const char* name : {"tune-0000", "tune-0001"}) add("succeeded", name).mutable_sweep()->set_sweep("s2");
    s.jobs.back().mutable_sweep()->set_index(1);
    for (std::uint32_t index = 0; index < 2500; ++index) {
      auto& sweep = *add("running", "gate-" + std::to_string(10000 + index).substr(1)).mutable_sweep();
      sweep.set_sweep("s4");
      sweep.set_index(index);
    }
    s.jobs[100].set_held_by("ada");
  });
  const auto words = [&](std::vector<std::string> what) {
    what.insert(what.begin(), "__complete");
    return fake.muster(what).out;
  };
  EXPECT_EQ(words({"jobs", "rm"}), "3\ttune-0001, succeeded\n2\ttune-0000, succeeded\n1\told, failed\n");
  EXPECT_EQ(words({"jobs", "release"}).substr(0, 5), "101\tg");
  EXPECT_EQ(words({"sweeps"}), "s4\tgate, 2500 jobs\ns2\ttune, 2 jobs\n");
  EXPECT_LE(fake.get<std::size_t>([](FakeState& s) { return s.list_requests.size(); }), 10U);
}

TEST(Completion, ZshOffersJobsInARealShell) {
  if (!std::filesystem::exists("/usr/bin/zsh")) GTEST_SKIP() << "there is no zsh here";
  FakeController fake;
  add_some_jobs(fake);
  write_file(fake.folder().path() / "muster.zsh", script_of("zsh"));
  // The test replaces _describe, to which the script hands its words.
  const auto program = "autoload -Uz compinit; compinit -u -D; source " +
                       (fake.folder().path() / "muster.zsh").native() +
                       "; _describe() { print -l -- \"${(@P)argv[-1]}\" }; program=" + ::test::built_program("muster") +
                       "; _muster_ask jobs cancel; _muster_ask sweeps";
  const auto done = run({"/usr/bin/zsh", "-f", "-c", program}, fake.environment(), 20s);
  EXPECT_EQ(done.out, "13:run, pending\n12:run, running\ns11:run, 2 jobs\n") << done.err;
}

TEST(Completion, AnotherShellIsRefused) {
  const auto refused = run({::test::built_program("muster"), "completion", "tcsh"}, {}, 10s);
  EXPECT_EQ(refused.exit, 2);
  EXPECT_EQ(refused.out, "");
}

}  // namespace
}  // namespace test
