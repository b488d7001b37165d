// Goal: a job file that extends others gets their values, and problems name the right file, line and column.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/jobfile/job_file.h"
#include "tests/recipe_values.h"
#include "tests/temporary_folder.h"

namespace jobfile {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class Extends : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) { test::write_file(folder_ / name, text); }
  JobFile read(const std::string& name, const std::vector<std::string>& set = {}) {
    std::vector<Override> overrides;
    for (const auto& assignment : set) overrides.push_back(override_of_set(assignment));
    return compose(JobSource::of_file(folder_ / name), overrides, FileChecks::kSkip);
  }
  std::string at(const std::string& name) const { return folder_ / name; }

  const test::TemporaryFolder folder_;
};

TEST_F(Extends, TablesAreMergedArraysReplacedAndTheUpperFileWins) {
  write("site.toml", "[slurm]\npartition = \"main\"\nsetup = [\"a\", \"b\"]\n[slurm.options]\nhint = \"x\"\n");
  write("base.toml",
        "extends = \"site.toml\"\nname = \"base\"\n[train]\nsteps = 10\nseed = 3\n[env]\nA = \"1\"\nB = \"1\"\n");
  write(
      "job.toml",
      "extends = \"base.toml\"\nname = \"job\"\ntrain.steps = 20\nslurm.setup = [\"c\"]\nslurm.options.wckey = \"w\"\n"
      "[env]\nB = \"2\"\n");
  const auto file = read("job.toml", {"train.seed=4"});
  ASSERT_THAT(file.problems, IsEmpty());
  EXPECT_EQ(file.spec.name(), "job");
  EXPECT_EQ(test::whole(file.spec, "train.steps"), 20);
  EXPECT_EQ(test::whole(file.spec, "train.seed"), 4) << "--set stands above all files";
  EXPECT_EQ(slurm_text(file.spec, "partition"), "main");
  EXPECT_THAT(file.spec.slurm().setup(), ElementsAre("c"));
  EXPECT_EQ(file.spec.slurm().options().at("hint"), "x");
  EXPECT_EQ(file.spec.slurm().options().at("wckey"), "w");
  EXPECT_EQ(file.spec.env().at("A"), "1");
  EXPECT_EQ(file.spec.env().at("B"), "2");
}

TEST_F(Extends, RelativePathsCountFromTheFileThatHasThem) {
  write("shared/base.toml", "[data]\nsource = \"folder\"\npath = \"text\"\n[train]\nsteps = 5\n");
  write("jobs/job.toml", "extends = \"../shared/base.toml\"\nname = \"a\"\ncheckpoint.folder = \"out\"\n");
  const auto file = read("jobs/job.toml");
  ASSERT_THAT(file.problems, IsEmpty());
  EXPECT_EQ(test::text(file.spec, "data.path"), at("shared/text"));
  EXPECT_EQ(file.spec.checkpoint().folder(), at("jobs/out"));
  EXPECT_EQ(file.spec.working_folder(), at("jobs"));
}

TEST_F(Extends, AProblemIsToldOfTheFileThatHasIt) {
  write("base/base.toml", "[train]\nsteps = 0\nlearing_rate = 1\nwarmup_steps = 7\n");
  write("job.toml", "extends = \"base/base.toml\"\nname = \"a b\"\n");
  EXPECT_THAT(read("job.toml").problems,
              ElementsAre(StartsWith(at("job.toml") + ":2:8: name \"a b\": want"),
                          StartsWith(at("base/base.toml") + ":2:9: train.steps \"0\": want"),
                          StartsWith(at("base/base.toml") + ":3:1: train.learing_rate: unknown key")));
  write("job.toml", "extends = \"base/base.toml\"\nname = \"a\"\ntrain = 5\n");
  EXPECT_THAT(read("job.toml").problems, ElementsAre(StartsWith(at("job.toml") + ":3:9: train \"5\": want a table")));
  write("base/base.toml", "[train]\nsteps = = 0\n");
  EXPECT_THAT(read("job.toml").problems, ElementsAre(StartsWith(at("base/base.toml") + ":2:9: not TOML: ")));
  write("base/base.toml", "[train]\nsteps = 50\nwarmup_steps = 7\n");
  write("job.toml", "extends = \"base/base.toml\"\nname = \"a\"\ntrain.steps = 5\n");
  EXPECT_THAT(
      read("job.toml").problems,
      ElementsAre(StartsWith(at("base/base.toml") + ":3:16: train.warmup_steps \"7\": want at most steps = 5")));
}

TEST_F(Extends, WhatCannotBeReadIsNamedWhereItIsAskedFor) {
  const auto problem = [&](const std::string& extends) {
    write("job.toml", "name = \"a\"\nextends = " + extends + "\n");
    const auto problems = read("job.toml").problems;
    return problems.size() == 1 ? problems[0] : std::to_string(problems.size()) + " problems";
  };
  const auto here = at("job.toml") + ":2:11: extends ";
  EXPECT_THAT(problem("\"none.toml\""), StartsWith(here + "\"none.toml\": there is no such job file"));
  EXPECT_THAT(problem("\".\""), StartsWith(here + "\".\": this is a folder"));
  EXPECT_THAT(problem("[\"a.toml\"]"), EndsWith("want another job file's path in quotes"));
  EXPECT_THAT(problem("\"\""), EndsWith("want another job file's path in quotes"));
  EXPECT_THAT(problem("\"job.toml\""), HasSubstr("extend each other in a circle"));
  EXPECT_THAT(read("job.toml", {"extends=x"}).problems, testing::SizeIs(1));
  write("job.toml", "name = \"a\"\ncommand = [\"true\"]\n");
  EXPECT_THAT(read("job.toml", {"extends=x"}).problems,
              ElementsAre("--set extends=x: this key can be set in the job file only"));
}

TEST_F(Extends, CirclesAndDeepChainsEnd) {
  write("a.toml", "extends = \"b.toml\"\n");
  write("b.toml", "extends = \"c.toml\"\n");
  write("c.toml", "\nextends = \"./a.toml\"\n");
  EXPECT_THAT(read("a.toml").problems,
              ElementsAre(at("c.toml") + ":2:11: extends \"./a.toml\": the files extend each other in a circle; remove "
                                         "one of the extends"));
  for (int i = 1; i <= 9; ++i) {
    write("d" + std::to_string(i) + ".toml",
          i == 9 ? "name = \"a\"\ncommand = [\"true\"]\n" : "extends = \"d" + std::to_string(i + 1) + ".toml\"\n");
  }
  EXPECT_THAT(read("d2.toml").problems, IsEmpty()) << "eight files";
  EXPECT_THAT(read("d1.toml").problems,
              ElementsAre(at("d8.toml") + ":1:11: extends \"d9.toml\": more than 8 files deep; merge some of "
                                          "them"));
}

}  // namespace
}  // namespace jobfile
