#include "spec/jobfile/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "spec/jobfile/job_file.h"
#include "spec/jobfile/job_keys.h"
#include "tests/recipe_values.h"

namespace jobfile {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

Sweep swept(const std::string& rest, const std::vector<std::string>& axes, const std::vector<std::string>& set = {}) {
  std::vector<SweepAxis> read;
  for (const auto& text : axes) {
    auto axis = axis_of_option(text);
    if (!axis.problem.empty()) return {{}, {axis.problem}, 0};
    read.push_back(std::move(axis.axis));
  }
  std::vector<Override> overrides;
  for (const auto& assignment : set) overrides.push_back(override_of_set(assignment));
  const auto source = JobSource::of_text("name = \"tune\"\n[train]\nsteps = 10\n" + rest, "job.toml", "/tmp");
  return compose_sweep(source, overrides, std::move(read), FileChecks::kSkip);
}

std::string text_of(const muster::v1::JobSpec& spec) {
  const std::map<std::string, std::string> sorted(spec.sweep().settings().begin(), spec.sweep().settings().end());
  auto text = spec.name();
  for (const auto& [key, value] : sorted) text += " " + key + "=" + value;
  return text;
}
std::vector<std::string> texts_of(const Sweep& sweep) {
  std::vector<std::string> texts;
  for (const auto& spec : sweep.specs) texts.push_back(text_of(spec));
  return texts;
}

TEST(Sweep, IsEveryCombinationInAStableOrder) {
  const auto sweep = swept("", {"train.learning_rate=1e-4,3e-4", "seed=0..2"});
  ASSERT_THAT(sweep.problems, IsEmpty());
  EXPECT_THAT(
      texts_of(sweep),
      ElementsAre("tune-0000 train.learning_rate=1e-4 train.seed=0", "tune-0001 train.learning_rate=1e-4 train.seed=1",
                  "tune-0002 train.learning_rate=1e-4 train.seed=2", "tune-0003 train.learning_rate=3e-4 train.seed=0",
                  "tune-0004 train.learning_rate=3e-4 train.seed=1",
                  "tune-0005 train.learning_rate=3e-4 train.seed=2"));
  EXPECT_EQ(test::real(sweep.specs[4], "train.learning_rate"), 3e-4);
  EXPECT_EQ(test::whole(sweep.specs[4], "train.seed"), 1);
  EXPECT_EQ(sweep.specs[4].sweep().index(), 4U);
  EXPECT_EQ(test::real(sweep.specs[4], "train.min_learning_rate"), 3e-5)
      << "what follows from a value follows from its";
  EXPECT_EQ(sweep.parallel, 0U);
}

TEST(Sweep, TheTableInTheFileMeansTheSame) {
  const auto table =
      "[sweep]\nparallel = 2\nseed = \"1..2,7\"\ntrain.learning_rate = [1e-4, 0.01]\n\"env.A\" = [\"x y\", \"1,2\"]\n";
  const auto sweep = swept(table, {});
  ASSERT_THAT(sweep.problems, IsEmpty());
  ASSERT_THAT(sweep.specs, SizeIs(12));
  EXPECT_EQ(sweep.parallel, 2U);
  EXPECT_EQ(text_of(sweep.specs[1]), "tune-0001 env.A=1,2 train.learning_rate=1e-4 train.seed=1");
  EXPECT_EQ(sweep.specs[1].env().at("A"), "1,2");
  EXPECT_EQ(text_of(sweep.specs[11]), "tune-0011 env.A=1,2 train.learning_rate=0.01 train.seed=7");
  const auto replaced = swept(table, {"train.seed=5", "train.schedule=linear,constant"});
  ASSERT_THAT(replaced.specs, SizeIs(8));
  EXPECT_EQ(text_of(replaced.specs[1]),
            "tune-0001 env.A=x y train.learning_rate=1e-4 train.schedule=constant train.seed=5");
  const auto plain = compose(JobSource::of_text(std::string("name = \"tune\"\n[train]\n") + table, "job.toml", "/tmp"),
                             {}, FileChecks::kSkip);
  EXPECT_THAT(plain.problems, IsEmpty());
  EXPECT_THAT(plain.axes, SizeIs(3));
}

TEST(Sweep, SettingsAreShownAsTheyWereWritten) {
  const auto fine = swept("[sweep]\n# \u00e4\ntrain.learning_rate = [1e-3, 0.002,3E-3 ]\nenv.A = 2.50\n", {});
  ASSERT_THAT(fine.problems, IsEmpty());
  EXPECT_THAT(texts_of(fine), ElementsAre("tune-0000 env.A=2.50 train.learning_rate=1e-3",
                                          "tune-0001 env.A=2.50 train.learning_rate=0.002",
                                          "tune-0002 env.A=2.50 train.learning_rate=3E-3"));
  EXPECT_EQ(fine.specs[0].env().at("A"), "2.50");
}

TEST(Sweep, EachJobIsCheckedAndTheProblemNamesItsSetting) {
  EXPECT_THAT(swept("", {"train.learning_rate=1e-4,0"}).problems,
              ElementsAre("--sweep train.learning_rate=0: want a number above 0, at most 1000"));
  EXPECT_THAT(swept("batch_size = 8\n", {"resources.ranks_per_node=1,3"}).problems,
              ElementsAre(StartsWith("job.toml:4:14: train.batch_size \"8\": want a multiple of 3")));
  EXPECT_THAT(swept("[sweep]\ntrain.steps = [5, 0]\n", {}).problems,
              ElementsAre("job.toml:5:7: sweep.train.steps=0: want a whole number from 1 to 4294967295"));
  EXPECT_THAT(swept("foo = 1\n", {"seed=0..9"}).problems, ElementsAre(StartsWith("job.toml:4:1: train.foo: unknown")))
      << "once, not for each job";
}

TEST(Sweep, WhatIsNoAxisIsRefusedWithItsRemedy) {
  const auto problem = [](const std::string& axis) {
    const auto problems = swept("", {axis}).problems;
    return problems.size() == 1 ? problems[0] : std::to_string(problems.size()) + " problems";
  };
  EXPECT_EQ(problem("train.seed"), "--sweep train.seed: want key=values, such as train.seed=0..3");
  EXPECT_EQ(problem("train.seed="), "--sweep train.seed=: a value is missing; want values such as 1e-4,3e-4 or 0..3");
  EXPECT_EQ(problem("seed=1,,2"), "--sweep seed=1,,2: a value is missing; want values such as 1e-4,3e-4 or 0..3");
  EXPECT_EQ(problem("seed=3..0"), "--sweep seed=3..0: want the smaller number first: 0..3");
  EXPECT_EQ(problem("seed=1..2,2"), "--sweep seed=1..2,2: 2 is given twice; each combination runs once");
  EXPECT_EQ(problem("train.learing_rate=1"),
            "--sweep train.learing_rate=1: unknown key, did you mean train.learning_rate");
  EXPECT_EQ(problem("sede=1"), "--sweep sede=1: unknown key, did you mean train.seed");
  for (const char* key : {"name", "command", "after", "hold", "extends", "executor", "sweep"}) {
    EXPECT_EQ(problem(std::string(key) + "=1"), "--sweep " + std::string(key) + "=1: a sweep can't vary this key");
  }
  EXPECT_THAT(problem("seed=0..10000"), HasSubstr("a sweep is at most 10000 jobs"));
  EXPECT_THAT(problem("seed=-9223372036854775808..9223372036854775807"), HasSubstr("at most 10000 jobs"));
  EXPECT_THAT(swept("", {"seed=0..999", "train.steps=1..11"}).problems,
              ElementsAre(StartsWith("the sweep is more than 10000 jobs")));
  EXPECT_THAT(swept("", {"seed=1"}, {"train.seed=2"}).problems,
              ElementsAre("--set train.seed=2: the sweep varies it; remove one of them"));
  EXPECT_THAT(swept("", {}).problems, ElementsAre("job.toml: the sweep varies no key"));
}

TEST(Sweep, AWrongTableIsRefusedAtItsPlace) {
  EXPECT_THAT(
      swept("[sweep]\nparallel = 0\nseed = []\nsteps = [[1]]\nfoo = [1]\ntrain.seed = 1979-05-27\n", {}).problems,
      ElementsAre("job.toml:5:12: sweep.parallel \"0\": want a whole number from 1 to 10000",
                  "job.toml:6:8: sweep.seed \"[]\": want one value or more",
                  "job.toml:7:10: sweep.steps \"[ 1 ]\": want a text, a number or true or false",
                  StartsWith("job.toml:8:1: sweep.foo \"[ 1 ]\": unknown key"),
                  StartsWith("job.toml:9:14: sweep.train.seed \"1979-05-27\": want an array of values")));
  EXPECT_THAT(swept("[sweep]\nseed = 1\ntrain.seed = [2]\n", {}).problems,
              ElementsAre(HasSubstr("the key is given twice; remove one of them")));
  EXPECT_THAT(compose(JobSource::of_text("name = \"a\"\ncommand = [\"true\"]\nsweep = 5", "job.toml", "/tmp"), {},
                      FileChecks::kSkip)
                  .problems,
              ElementsAre("job.toml:3:9: sweep \"5\": want a table: [sweep] and its keys below"));
}

TEST(Sweep, OfACommandNamesTheVariableToUseOnce) {
  const auto source = JobSource::of_text("name = \"a\"\ncommand = [\"/bin/true\"]\n", "job.toml", "/tmp");
  const auto sweep = compose_sweep(source, {}, {axis_of_option("seed=0..3").axis}, FileChecks::kSkip);
  EXPECT_THAT(sweep.problems,
              ElementsAre("--sweep train.seed: this job runs a command, and recipes alone have this key; "
                          "set a variable that the program reads, such as env.SEED"));
}

TEST(Sweep, AnAmbiguousLastPartListsTheCandidates) {
  EXPECT_EQ(resolve_sweep_key("size", {"a.size", "b.size", "b.sizes"}).problem,
            "several keys end in this name; want one of a.size, b.size");
  EXPECT_EQ(resolve_sweep_key("sizes", {"a.size", "b.size", "b.sizes"}).key, "b.sizes");
  EXPECT_EQ(resolve_sweep_key("env.ANY", {}).key, "env.ANY");
  EXPECT_EQ(resolve_sweep_key("slurm.options.hint", {}).key, "slurm.options.hint");
}

TEST(Sweep, NoTwoJobsShareACheckpointFolder) {
  const auto sweep = swept("[checkpoint]\nfolder = \"out\"\n", {"learning_rate=1e-4,3e-4", "env.A=a b/c"});
  ASSERT_THAT(sweep.problems, IsEmpty());
  EXPECT_EQ(sweep.specs[0].checkpoint().folder(), "/tmp/out/train.learning_rate=1e-4,env.A=a_b_c");
  EXPECT_EQ(sweep.specs[1].checkpoint().folder(), "/tmp/out/train.learning_rate=3e-4,env.A=a_b_c");
  EXPECT_THAT(swept("[checkpoint]\nfolder = \"out\"\n", {"env.A=a b,a_b"}).problems,
              ElementsAre(AllOf(HasSubstr("tune-0000 and tune-0001 would both use it"), HasSubstr("leave it out"))));
  EXPECT_THAT(swept("", {"checkpoint.folder=a,./a"}).problems, ElementsAre(HasSubstr("would both use it")));
  const auto varied = swept("", {"checkpoint.folder=a,b"});
  ASSERT_THAT(varied.problems, IsEmpty());
  EXPECT_EQ(varied.specs[1].checkpoint().folder(), "/tmp/b");
  EXPECT_EQ(swept("", {"seed=1,2"}).specs[1].checkpoint().folder(), "") << "the controller gives each its own";
}

TEST(Sweep, NoTwoJobsWriteToOnePath) {
  const auto sweep = swept(
      "export_folder = \"model\"\nfull_state_file = \"out/model.safetensors\"\nlog_folder = \"logs\"\n", {"seed=1,2"});
  ASSERT_THAT(sweep.problems, IsEmpty());
  EXPECT_EQ(test::text(sweep.specs[0], "train.export_folder"), "/tmp/model/train.seed=1");
  EXPECT_EQ(test::text(sweep.specs[1], "train.export_folder"), "/tmp/model/train.seed=2");
  EXPECT_EQ(test::text(sweep.specs[1], "train.full_state_file"), "/tmp/out/train.seed=2/model.safetensors");
  EXPECT_EQ(test::text(sweep.specs[1], "train.log_folder"), "/tmp/logs/train.seed=2");
  const auto varied = swept("", {"train.export_folder=a,b"});
  ASSERT_THAT(varied.problems, IsEmpty());
  EXPECT_EQ(test::text(varied.specs[1], "train.export_folder"), "/tmp/b");
  EXPECT_THAT(swept("", {"train.export_folder=a,./a"}).problems,
              ElementsAre(AllOf(HasSubstr("train.export_folder \"/tmp/a\""), HasSubstr("would both use it"))));
}

TEST(Sweep, NamesStayWithinTheirLength) {
  const auto sweep = swept("", {"seed=0..1"}, {"name=" + std::string(spec::kLongestName, 'x')});
  ASSERT_THAT(sweep.problems, IsEmpty());
  EXPECT_EQ(sweep.specs[1].name(), std::string(spec::kLongestName - 5, 'x') + "-0001");
}

TEST(Sweep, TenThousandJobsAreComposed) {
  const auto sweep = swept("", {"seed=0..99", "train.steps=1..100"});
  ASSERT_THAT(sweep.problems, IsEmpty());
  ASSERT_THAT(sweep.specs, SizeIs(kMostSweepJobs));
  std::set<std::string> names;
  std::size_t bytes = 0;
  for (const auto& spec : sweep.specs) {
    names.insert(spec.name());
    bytes += spec.ByteSizeLong();
  }
  EXPECT_THAT(names, SizeIs(kMostSweepJobs));
  EXPECT_LT(bytes, std::size_t{24} << 20) << "one call takes 32 MiB, and a job file may say more";
}

}  // namespace
}  // namespace jobfile
