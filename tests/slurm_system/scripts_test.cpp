// Goal: the script that people are shown is the one that Slurm gets, and it works wherever the data folder lies.
// Method: real Slurm, a data folder whose name means something to shells and to Slurm; `muster submit --print-script`
// against what slurmctld has.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "tests/places.h"
#include "tests/slurm_system/story.h"

namespace story {
namespace {

using testing::HasSubstr;

struct Scripts;
class SlurmScripts : public Story<Scripts> {
 public:
  static void SetUpTestSuite() { set_up({.nodes = 2}, {}, {}, "it's 100%j of \"data\" $HOME"); }

 protected:
  static std::string printed(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"submit", "--print-script"});
    const auto done = muster().cli(arguments);
    EXPECT_EQ(done.exit, 0) << done.err;
    return done.out;
  }
  /// The script of a job in Slurm's queue, in which the job stays until the test is over.
  static std::string script_of(const std::string& slurm_job) {
    return slurm().run({"scontrol", "write", "batch_script", slurm_job, "-"}).out;
  }
};

TEST_F(SlurmScripts, OfAJobIsShownAsSlurmGetsIt) {
  const auto file = muster().folder() / "single.toml";
  test::write_file(file, shell({.script = "sleep 60", .more = "[slurm]\nsetup = [\"echo 'a  b' $HOME\"]\n"}));
  const auto shown = printed({file});
  const auto job = muster().submit(test::read_file(file));
  stage().until_running(job, 1);
  EXPECT_EQ(script_of(stage().slurm_job(job, 1)), shown);
  EXPECT_THAT(shown, HasSubstr("--comment="));
}

TEST_F(SlurmScripts, OfASweepIsShownAsSlurmGetsIt) {
  const auto file = muster().folder() / "sweep.toml";
  test::write_file(file, shell({.script = "sleep 60", .more = "[slurm]\narray_parallelism = 1\n[env]\nA = \"0\"\n"}));
  const std::vector<std::string> arguments{file, "--sweep", "env.A=0..2"};
  const auto shown = printed(arguments);
  EXPECT_THAT(shown, HasSubstr("--array=0-2%1\n"));
  auto submit = arguments;
  submit.insert(submit.begin(), "submit");
  const auto sweep = muster().cli(submit);
  ASSERT_EQ(sweep.exit, 0) << sweep.err;
  const auto jobs = jobs_of(muster(), sweep);
  ASSERT_EQ(jobs.size(), 3U);
  const auto element = stage().until_handed_over(std::to_string(jobs.back().at("id").get<int>()));
  EXPECT_EQ(script_of(element.substr(0, element.find('_'))), shown);
}

/// Options that the first lines of a script ask Slurm for: "nodes" -> "2".
std::map<std::string, std::string> asked_in(const std::string& script) {
  static constexpr std::string_view kLead = "#SBATCH --";
  std::map<std::string, std::string> asked;
  std::istringstream lines(script);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(kLead)) continue;
    const auto equals = std::min(line.find('='), line.size());
    asked[line.substr(kLead.size(), equals - kLead.size())] = line.substr(std::min(equals + 1, line.size()));
  }
  return asked;
}

// muster init RECIPE --full writes these files. This cluster has no partition "gpu", and its nodes have no such GPUs.
TEST_F(SlurmScripts, OfEachTrainingAtItsFullSizeAskForWhatItsFileSays) {
  struct Size {
    const char *nodes, *tasks_per_node, *minutes, *array;
  };
  const std::map<std::string, Size> sizes{{"bert", {"1", "2", "240", ""}},       {"chess", {"2", "4", "720", ""}},
                                          {"chess-lora", {"1", "4", "720", ""}}, {"dino", {"4", "8", "2880", ""}},
                                          {"masked-lm", {"2", "4", "2880", ""}}, {"pythia", {"1", "2", "720", "0-1"}},
                                          {"t5", {"1", "4", "720", ""}}};
  const auto jobs = muster().json({"list"}).size();
  std::set<std::string> seen;
  for (const auto& entry : std::filesystem::directory_iterator(::test::source_folder() + "/examples/recipes/full")) {
    const std::string name = entry.path().stem();
    SCOPED_TRACE(name);
    seen.insert(name);
    ASSERT_TRUE(sizes.contains(name)) << "a new file: say here what it asks for";
    const Size& size = sizes.at(name);
    auto asked = asked_in(printed({"--set", "slurm.partition=main", entry.path()}));
    EXPECT_EQ(asked["nodes"], size.nodes);
    EXPECT_EQ(asked["ntasks-per-node"], size.tasks_per_node);
    EXPECT_EQ(asked["gpus-per-task"], "1");
    EXPECT_EQ(asked["time"], size.minutes);
    EXPECT_EQ(asked["array"], size.array);
  }
  EXPECT_EQ(seen.size(), sizes.size());
  EXPECT_EQ(muster().json({"list"}).size(), jobs) << "nothing was submitted";
}

// In a shell of its own, whose end is nobody's.
TEST_F(SlurmScripts, TeardownIsDoneHoweverTheRanksEndedAndChangesNothingOfIt) {
  const auto torn = (muster().folder() / "torn-").string();
  const auto job_that = [&](const std::string& script) {
    return muster().submit(shell({.script = script,
                                  .requeue = "max_failed = 0\n",
                                  .more = "[slurm]\nteardown = [\"touch " + torn + "$SLURM_JOB_ID; exit 3\"]\n"}));
  };
  const auto good = job_that("true"), bad = job_that("exit 7");
  muster().until_state(good, "succeeded");
  EXPECT_EQ(attempt(muster().until_state(bad, "failed"), 1).at("exit_code"), 7);
  for (const auto& [job, state] : {std::pair(good, "COMPLETED"), std::pair(bad, "FAILED")}) {
    const auto id = stage().slurm_job(job, 1);
    EXPECT_TRUE(slurm_cluster::becomes(slurm(), id, "State", state)) << slurm_cluster::field(slurm(), id, "State");
    EXPECT_TRUE(std::filesystem::exists(torn + id));
  }
}

// Alone and as elements of an array, whose log's name Slurm makes.
TEST_F(SlurmScripts, TrainAndLogWhereverTheDataFolderLies) {
  const auto file = muster().folder() / "setup.toml";
  test::write_file(file, shell({.script = "echo rank $RANK in \"$MUSTER_ATTEMPT_FOLDER\"",
                                .more = "[slurm]\nsetup = [\"echo set up\"]\n[env]\nA = \"0\"\n"}));
  std::vector<std::string> jobs{muster().submit(test::read_file(file))};
  const auto sweep = muster().cli({"submit", file, "--sweep", "env.A=0..1", "--wait"});
  ASSERT_EQ(sweep.exit, 0) << sweep.err;
  for (const auto& job : jobs_of(muster(), sweep)) {
    jobs.push_back(std::to_string(job.at("id").get<int>()));
  }
  ASSERT_EQ(jobs.size(), 3U);
  for (const auto& job : jobs) {
    muster().until_state(job, "succeeded");
    EXPECT_THAT(muster().cli({"logs", job}).out, HasSubstr("rank 0 in " + muster().data().string() + "/jobs/" + job));
    EXPECT_THAT(muster().cli({"logs", job, "--slurm"}).out, HasSubstr("set up\n"));
  }
}

}  // namespace
}  // namespace story
