// Goal: a job can be submitted from a file, standard input or another job, with the submitter's variables and options.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/jobfile/job_keys.h"
#include "tests/cli/fake_controller.h"
#include "tests/places.h"

namespace test {
namespace {

using muster::v1::JobSpec;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr const char* kTrain = "name = \"train\"\ncommand = [\"python3\", \"train.py\"]\n";

class SubmitWays : public testing::Test {
 protected:
  std::string file(const std::string& text) {
    const auto path = fake_.folder().path() / "job.toml";
    write_file(path, text);
    return path;
  }
  Finished submit(std::vector<std::string> arguments, std::map<std::string, std::string> more = {}) {
    arguments.insert(arguments.begin(), "submit");
    return fake_.muster(arguments, std::move(more));
  }
  JobSpec newest() {
    return fake_.get<JobSpec>([](FakeState& s) { return s.submitted.empty() ? JobSpec() : s.submitted.back().spec(); });
  }
  /// Runs a shell line with a pipe as standard input.
  Finished shell(const std::string& line) {
    auto variables = fake_.environment();
    variables["MUSTER"] = ::test::built_program("muster");
    return run({"/bin/bash", "-c", "cd " + fake_.folder().path().native() + " && " + line}, variables, 30s);
  }

  FakeController fake_;
};

TEST_F(SubmitWays, ACommandTakesTheSubmittersEnvironmentAndAVariableThatIsNamed) {
  const auto path = file(kTrain);
  const auto done = submit({path, "--env", "HF_TOKEN", "--env", "LR=1 e\"-3", "--env", "EMPTY="},
                           {{"PATH", "/venv/bin:/usr/bin:/bin"}, {"VIRTUAL_ENV", "/venv"}, {"HF_TOKEN", "hf_abc"}});
  ASSERT_EQ(done.exit, 0) << done.err;
  const auto spec = newest();
  EXPECT_EQ(spec.environment(), "submit");
  EXPECT_EQ(spec.submitted_env().at("PATH"), "/venv/bin:/usr/bin:/bin");
  EXPECT_EQ(spec.submitted_env().at("VIRTUAL_ENV"), "/venv");
  EXPECT_FALSE(spec.submitted_env().contains("HF_TOKEN"));
  EXPECT_THAT(spec.env(), UnorderedElementsAre(Pair("HF_TOKEN", "hf_abc"), Pair("LR", "1 e\"-3"), Pair("EMPTY", "")));
  EXPECT_EQ(spec.job_file(), path);
}

TEST_F(SubmitWays, WhatAVariableLacksIsSaidAndItsValueNever) {
  const auto path = file(kTrain);
  const auto err = [&](const std::string& variable) {
    const auto done = submit({path, "--env", variable});
    EXPECT_EQ(done.exit, 2);
    return done.err;
  };
  EXPECT_THAT(err("NOT_SET_HERE"),
              HasSubstr("--env NOT_SET_HERE: the variable is not set here; export it, or write --env "
                        "NOT_SET_HERE=VALUE\n"));
  EXPECT_THAT(err("A-B=secret"), AllOf(HasSubstr("--env A-B: want NAME or NAME=VALUE; a name has letters, digits and "
                                                 "\"_\", and does not begin with a digit\n"),
                                       Not(HasSubstr("secret"))));
  EXPECT_THAT(err("MUSTER_JOB_ID=secret"), AllOf(HasSubstr("--env MUSTER_JOB_ID: want another name: muster sets this "
                                                           "one itself"),
                                                 Not(HasSubstr("secret"))));
  EXPECT_THAT(fake_.get<std::size_t>([](FakeState& s) { return s.submitted.size(); }), 0U);
}

TEST_F(SubmitWays, WhatFollowsTwoDashesIsAddedToTheCommand) {
  const auto done = submit({file(kTrain), "--name", "b", "--", "--lr", "3e-4", "--", "x y"});
  ASSERT_EQ(done.exit, 0) << done.err;
  EXPECT_THAT(newest().command().argv(), ElementsAre("python3", "train.py", "--lr", "3e-4", "--", "x y"));
  EXPECT_EQ(newest().name(), "b");
  const auto recipe = submit({file("name = \"a\"\n[train]\n"), "--", "--lr", "3e-4"});
  EXPECT_EQ(recipe.exit, 2);
  EXPECT_THAT(recipe.err, HasSubstr("-- --lr 3e-4: want a job file with a command to add these words to; set a "
                                    "recipe's keys with --set train.steps=10\n"));
  const auto without = submit({file(kTrain), "--lr", "3"});
  EXPECT_EQ(without.exit, 2);
  EXPECT_THAT(without.err, HasSubstr("there is no option --lr"));
}

TEST_F(SubmitWays, ACommandNeedsNoJobFile) {
  const auto done = shell(
      "\"$MUSTER\" submit --ranks 4 --nodes 2 --gpus 8 --time 90 --set stop_grace=5s --env LR=1 -- "
      "python3 src/train.py --lr 3e-4 -- 'x y'");
  ASSERT_EQ(done.exit, 0) << done.err;
  EXPECT_EQ(done.out, "1\n");
  EXPECT_THAT(done.err, HasSubstr("muster: submitted train as job 1;"));
  const auto spec = newest();
  EXPECT_THAT(spec.command().argv(), ElementsAre("python3", "src/train.py", "--lr", "3e-4", "--", "x y"));
  EXPECT_EQ(spec.name(), "train");
  EXPECT_EQ(spec.working_folder(), fake_.folder().path().native());
  EXPECT_EQ(spec.environment(), "submit");
  EXPECT_TRUE(spec.submitted_env().contains("PATH"));
  EXPECT_EQ(spec.job_file(), "command line");
  EXPECT_EQ(spec.resources().nodes(), 2U);
  EXPECT_EQ(spec.resources().ranks_per_node(), 2U);
  EXPECT_EQ(spec.resources().gpus_per_rank(), 2U) << "8 of the whole job are 2 of each of its 4 ranks";
  EXPECT_EQ(spec.resources().time_limit_ms(), 5'400'000);
  EXPECT_EQ(spec.resources().stop_grace_ms(), 5'000);
  EXPECT_EQ(spec.env().at("LR"), "1");

  ASSERT_EQ(shell("\"$MUSTER\" spec 1 | \"$MUSTER\" submit -").exit, 0);
  auto again = newest();
  again.set_job_file(spec.job_file());
  EXPECT_EQ(again.DebugString(), spec.DebugString());
  ASSERT_EQ(submit({"--like", "1", "--", "--lr", "1"}).exit, 0);
  EXPECT_EQ(newest().command().argv_size(), 8) << "with --like the words are added";
}

TEST_F(SubmitWays, AScriptForSbatchIsTakenWithItsArgumentsAndTheCommandLineWins) {
  write_file(fake_.folder().path() / "run.sh",
             "#!/bin/bash\n#SBATCH -J tune -N 2 --time=1:00:00\n#SBATCH --comment=x\necho $DATA_ROOT\n");
  const auto done =
      shell("DATA_ROOT=/data \"$MUSTER\" submit --time 2h --set stop_grace=5s --gpus 8 run.sh a 'b c' -- --lr 3");
  ASSERT_EQ(done.exit, 0) << done.err;
  EXPECT_THAT(done.err, HasSubstr("muster submit: note: run.sh:3: --comment=x: it is left out"));
  const auto spec = newest();
  EXPECT_EQ(spec.name(), "tune");
  EXPECT_EQ(spec.launcher(), "batch");
  EXPECT_EQ(spec.resources().nodes(), 2U);
  EXPECT_EQ(spec.resources().time_limit_ms(), 7'200'000);
  EXPECT_EQ(spec.slurm().options().at("gpus"), "8");
  EXPECT_EQ(spec.submitted_env().at("DATA_ROOT"), "/data");
  EXPECT_EQ(spec.job_file(), (fake_.folder().path() / "run.sh").native());
  const auto& argv = spec.command().argv();
  ASSERT_EQ(argv.size(), 9);
  EXPECT_THAT(std::vector<std::string>(argv.begin() + 5, argv.end()), ElementsAre("a", "b c", "--lr", "3"));
  const auto piped = shell("\"$MUSTER\" submit - x < run.sh");
  ASSERT_EQ(piped.exit, 0) << piped.err;
  EXPECT_EQ(newest().command().argv(5), "x");
  EXPECT_THAT(submit({file(kTrain), "x"}).err,
              HasSubstr("x: want one job file; arguments for its command stand after --"));
}

TEST_F(SubmitWays, ACommandsNameIsThatOfItsProgram) {
  const auto name_of = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "--");
    EXPECT_EQ(submit(words).exit, 0);
    return newest().name();
  };
  EXPECT_EQ(name_of({"./run it.sh", "a.py"}), "run-it");
  EXPECT_EQ(name_of({"torchrun", "--nproc-per-node", "2", "/a/b/finetune.py", "data.json"}), "finetune");
  EXPECT_EQ(name_of({"python3", "-m", "pkg.train_it", "--lr=0.5"}), "train_it");
  EXPECT_EQ(name_of({"/usr/bin/python3.11", "-c", "pass"}), "python3.11");
  EXPECT_EQ(name_of({"true"}), "true");
  ASSERT_EQ(submit({"--name", "mine", "--", "true"}).exit, 0);
  EXPECT_EQ(newest().name(), "mine");
}

TEST_F(SubmitWays, WhatACommandLacksIsSaidWithItsPlace) {
  const auto err = [&](std::vector<std::string> words) {
    const auto done = submit(std::move(words));
    EXPECT_EQ(done.exit, 2);
    return done.err;
  };
  EXPECT_THAT(err({"--time", "90x", "--", "true"}), HasSubstr("--time 90x: want a duration"));
  EXPECT_THAT(
      err({"--ranks", "3", "--nodes", "2", "--", "true"}),
      HasSubstr("--ranks 3: the job has 2 nodes, and each gets the same number of ranks; want a multiple of 2, or "
                "--set resources.ranks_per_node=1\n"));
  EXPECT_THAT(err({"--ranks", "few", "--", "true"}),
              HasSubstr("--ranks few: want a number of ranks for the whole job"));
  EXPECT_THAT(err({"--ranks", "0", "--", "true"}), HasSubstr("--ranks 0: want"));
  EXPECT_THAT(err({"--set", "train.steps=3", "--", "true"}), HasSubstr("--set train.steps=3: this job runs a command"));
  EXPECT_THAT(err({"--sweep", "env.A=1,2", "--follow", "--", "true"}), HasSubstr("--follow shows one job"));
  EXPECT_THAT(err({"--", ""}), HasSubstr("command line: command \"[\"\"]\": want a program and its arguments"));
  EXPECT_THAT(err({"train.py"}), HasSubstr("train.py is a program, and no job file; submit it as a command: muster "
                                           "submit -- python3 train.py; "));
  EXPECT_THAT(fake_.get<std::size_t>([](FakeState& s) { return s.submitted.size(); }), 0U);
}

TEST_F(SubmitWays, ACommandMayBeASweep) {
  const auto done = submit({"--sweep", "env.LR=1,2", "--parallel", "1", "--", "python3", "train.py"});
  ASSERT_EQ(done.exit, 0) << done.err;
  const auto call = fake_.get<muster::v1::SubmitSweepRequest>([](FakeState& s) { return s.swept.back(); });
  ASSERT_EQ(call.specs_size(), 2);
  EXPECT_EQ(call.parallel(), 1U);
  EXPECT_EQ(call.specs(1).name(), "train-0001");
  EXPECT_EQ(call.specs(1).env().at("LR"), "2");
  EXPECT_EQ(call.specs(1).job_file(), "command line");
}

TEST_F(SubmitWays, TheWordsOfSbatchAreUnderstood) {
  const auto path = file(std::string(kTrain) + "[resources]\nranks_per_node = 2\n");
  const auto done = submit({path, "--partition", "gpu", "--nodes", "2", "--gpus", "8", "--time", "2-00:00:00"});
  ASSERT_EQ(done.exit, 0) << done.err;
  const auto spec = newest();
  EXPECT_EQ(jobfile::slurm_text(spec, "partition"), "gpu");
  EXPECT_EQ(spec.resources().nodes(), 2U);
  EXPECT_EQ(spec.resources().gpus_per_rank(), 2U) << "8 of the whole job are 2 of each of its 4 ranks";
  EXPECT_EQ(spec.resources().time_limit_ms(), 172'800'000);
  ASSERT_EQ(submit({path, "--time", "30"}).exit, 0);
  EXPECT_EQ(newest().resources().time_limit_ms(), 1'800'000) << "minutes";
  ASSERT_EQ(submit({path, "--time", "12h"}).exit, 0);
  EXPECT_EQ(newest().resources().time_limit_ms(), 43'200'000);
  const auto uneven = submit({path, "--gpus", "3"});
  EXPECT_EQ(uneven.exit, 2);
  EXPECT_THAT(uneven.err, HasSubstr("--gpus 3: the job has 2 ranks, and each gets the same number of GPUs; want a "
                                    "multiple of 2, or --set resources.gpus_per_rank=1\n"));
  EXPECT_THAT(submit({path, "--gpus", "a100:2"}).err, HasSubstr("--gpus a100:2: want a number of GPUs"));
  EXPECT_THAT(submit({path, "--time", "soon"}).err, HasSubstr("--time soon: want a duration"));
}

TEST_F(SubmitWays, AJobFileMayComeFromStandardInput) {
  const auto done = shell(
      "printf 'name = \"piped\"\\ncommand = [\"true\"]\\nworking_folder = \"sub\"\\n' > in.toml && mkdir "
      "sub && \"$MUSTER\" submit - < in.toml");
  ASSERT_EQ(done.exit, 0) << done.err;
  EXPECT_EQ(newest().name(), "piped");
  EXPECT_EQ(newest().working_folder(), (fake_.folder().path() / "sub").native()) << "paths count from here";
  EXPECT_EQ(newest().job_file(), "standard input");
  const auto wrong = shell("echo 'name = 3' | \"$MUSTER\" submit -");
  EXPECT_EQ(wrong.exit, 2);
  EXPECT_THAT(wrong.err, HasSubstr("standard input:1:8: name \"3\": want 1 to "));
}

TEST_F(SubmitWays, AnotherJobsSettingsAreTakenWithItsEnvironment) {
  ASSERT_EQ(submit({file(std::string(kTrain) + "[env]\nHF_TOKEN = \"hf_abc\"\n"), "--set", "nodes=2"},
                   {{"PATH", "/first/bin:/usr/bin:/bin"}})
                .exit,
            0);
  const auto again = submit({"--like", "1", "--set", "time_limit=2h"}, {{"PATH", "/second/bin:/usr/bin:/bin"}});
  ASSERT_EQ(again.exit, 0) << again.err;
  EXPECT_THAT(again.err,
              HasSubstr("muster: submitted train as job 2, with the settings and the submitter's environment "
                        "of job 1; follow it with muster logs 2 -f\n"));
  const auto spec = newest();
  EXPECT_EQ(spec.submitted_env().at("PATH"), "/first/bin:/usr/bin:/bin");
  EXPECT_EQ(spec.env().at("HF_TOKEN"), "hf_abc");
  EXPECT_EQ(spec.resources().nodes(), 2U);
  EXPECT_EQ(spec.resources().time_limit_ms(), 7'200'000);
  EXPECT_EQ(spec.working_folder(), fake_.folder().path().native());
  EXPECT_EQ(spec.job_file(), "job 1");

  ASSERT_EQ(submit({"--like", "1", "--set", "environment=submit"}, {{"PATH", "/second/bin:/usr/bin:/bin"}}).exit, 0);
  EXPECT_EQ(newest().submitted_env().at("PATH"), "/second/bin:/usr/bin:/bin") << "asked for, it is taken now";
  ASSERT_EQ(submit({"--like", "1", "--set", "environment=clean"}).exit, 0);
  EXPECT_THAT(newest().submitted_env(), IsEmpty());
  ASSERT_EQ(submit({"--like", "1", "--", "--lr", "1"}).exit, 0);
  EXPECT_THAT(newest().command().argv(), ElementsAre("python3", "train.py", "--lr", "1"));

  const auto unknown = submit({"--like", "99"});
  EXPECT_EQ(unknown.exit, 3);
  EXPECT_THAT(submit({}).err,
              HasSubstr("muster submit: want JOB.toml, - for standard input, a command after --, or --like "
                        "JOB; see muster submit --help\n"));
  EXPECT_THAT(submit({file(kTrain), "--like", "1"}).err, HasSubstr("want JOB.toml or --like, not both"));
}

TEST_F(SubmitWays, SpecPrintsAJobFileThatMakesTheSameJobAgain) {
  ASSERT_EQ(submit({file(std::string(kTrain) + "hold = true\n[resources]\ntime_limit = \"90m\"\n[env]\nLR = 3\n"),
                    "--env", "HF_TOKEN=hf_abc"},
                   {{"PATH", "/first/bin:/usr/bin:/bin"}})
                .exit,
            0);
  const auto first = newest();
  const auto open = fake_.muster({"spec", "1", "--secrets"});
  EXPECT_EQ(open.err, "");
  EXPECT_THAT(open.out, AllOf(HasSubstr("# The settings of job 1, submitted from " + first.job_file() + ".\n"),
                              HasSubstr("time_limit = \"1h30m\"\n"), HasSubstr("HF_TOKEN = \"hf_abc\"\n")));
  ASSERT_EQ(shell("\"$MUSTER\" spec 1 --secrets | \"$MUSTER\" submit -").exit, 0);
  auto second = newest();
  EXPECT_EQ(second.job_file(), "standard input");
  second.set_job_file(first.job_file());
  EXPECT_EQ(second.SerializeAsString().size(), first.SerializeAsString().size());
  EXPECT_EQ(second.DebugString(), first.DebugString());

  const auto hidden = fake_.muster({"spec", "1"});
  EXPECT_THAT(hidden.out, AllOf(HasSubstr("HF_TOKEN = \"********\"\n"), Not(HasSubstr("hf_abc"))));
  EXPECT_EQ(hidden.err,
            "muster: these secrets are hidden: env.HF_TOKEN; --secrets prints them, and muster submit --like 1 uses "
            "their values\n");
  const auto refused = shell("\"$MUSTER\" spec 1 2> /dev/null | \"$MUSTER\" submit -");
  EXPECT_EQ(refused.exit, 2);
  EXPECT_THAT(refused.err, HasSubstr("give it with muster submit --env HF_TOKEN\n"));
  EXPECT_EQ(shell("\"$MUSTER\" spec 1 2> /dev/null | \"$MUSTER\" submit - --env HF_TOKEN=again").exit, 0);
  EXPECT_EQ(newest().env().at("HF_TOKEN"), "again");
}

TEST_F(SubmitWays, WhatASweepTakesFromItsSubmitterTravelsOnce) {
  ASSERT_EQ(submit({file(kTrain), "--sweep", "env.LR=1,2"}, {{"PATH", "/first/bin:/usr/bin:/bin"}}).exit, 0);
  const auto call = fake_.get<muster::v1::SubmitSweepRequest>([](FakeState& s) { return s.swept.back(); });
  EXPECT_EQ(call.submitted_env().at("PATH"), "/first/bin:/usr/bin:/bin");
  ASSERT_EQ(call.specs_size(), 2);
  for (const auto& spec : call.specs()) {
    EXPECT_EQ(spec.environment(), "submit");
    EXPECT_THAT(spec.submitted_env(), IsEmpty());
  }
}

TEST_F(SubmitWays, ShowTellsWhatACommandRunsWhereAndInWhichEnvironment) {
  fake_.with([](FakeState& s) {
    auto job = sample_job(1, "running");
    auto& spec = *job.mutable_spec();
    for (const auto* word : {"python3", "train.py", "--note", "it's"}) spec.mutable_command()->add_argv(word);
    spec.set_working_folder("/home/ada/exp");
    spec.set_job_file("/home/ada/exp/job.toml");
    spec.set_environment("submit");
    (*spec.mutable_submitted_env())["PATH"] = "/venv/bin";
    (*spec.mutable_env())["LR"] = "1";
    s.jobs.push_back(job);
  });
  EXPECT_THAT(fake_.muster({"show", "1"}, {{"COLUMNS", "200"}}).out,
              HasSubstr("  command      python3 train.py --note 'it'\"'\"'s'\n"
                        "  folder       /home/ada/exp\n"
                        "  job file     /home/ada/exp/job.toml\n"
                        "  environment  submit: as after a fresh login, with variables from the submitter\n"
                        "               PATH=/venv/bin\n"
                        "  env          LR=1\n"));
}

}  // namespace
}  // namespace test
