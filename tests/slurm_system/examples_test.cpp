// Goal: the examples for Slurm do on a real one what their own lines say.
// Method: the files as they are shipped; where this machine is too small, by --set, as their first lines show.
#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include "tests/places.h"
#include "tests/slurm_system/story.h"

namespace story {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string kFinetune = ::test::source_folder() + "/examples/finetune-multinode.toml";

struct Examples;
class SlurmExamples : public Story<Examples> {
 public:
  static void SetUpTestSuite() { set_up({.nodes = 2}); }

 protected:
  static std::vector<std::string> small_finetune(std::vector<std::string> arguments) {
    for (const char* setting :
         {"resources.ranks_per_node=2", "resources.cpus_per_rank=1", "slurm.mem=512MiB", "train.steps=8",
          "train.batch_size=16", "train.micro_batch_size=2", "checkpoint.every_steps=4", "model.hidden_size=32",
          "model.intermediate_size=64", "model.num_hidden_layers=2", "model.num_attention_heads=2",
          "data.sequence_length=32", "data.source=fixture"}) {
      arguments.insert(arguments.end(), {"--set", setting});
    }
    // The GPUs are no more than files. A rank that is given one does not train on the CPU of its own accord.
    arguments.insert(arguments.end(), {"--env", "CUDA_VISIBLE_DEVICES="});
    arguments.insert(arguments.end(), {"--set", "working_folder=" + muster().folder().string(), kFinetune});
    return arguments;
  }
  /// The GPUs that Slurm lets a rank of a first attempt see. Slurm tells them in the variables of all makers.
  static std::string gpus_of(const std::string& job, int rank) {
    const auto process = "/proc/" + std::to_string(stage().pid_of_rank(job, 1, rank));
    const std::string name = "ROCR_VISIBLE_DEVICES=";
    std::istringstream environment(test::read_file(process + "/environ"));
    for (std::string entry; std::getline(environment, entry, '\0');) {
      if (entry.starts_with(name)) return entry.substr(name.size());
    }
    return "none";
  }
};

TEST_F(SlurmExamples, TheFineTuneIsTheUsualBatchScript) {
  const auto done = muster().cli({"submit", "--print-script", kFinetune});
  ASSERT_EQ(done.exit, 0) << done.err;
  for (const char* line : {"job-name=finetune", "partition=main", "nodes=2", "ntasks-per-node=4", "cpus-per-task=8",
                           "gpus-per-task=1", "mem=65536M", "time=720"}) {
    EXPECT_THAT(done.out, HasSubstr("#SBATCH --" + std::string(line) + "\n"));
  }
}

TEST_F(SlurmExamples, SlurmIsAskedWhetherTheFineTuneWouldStart) {
  const auto before = stage().slurm_jobs();
  const auto small = muster().cli(small_finetune({"submit", "--check"}));
  EXPECT_EQ(small.exit, 0) << small.err;
  EXPECT_THAT(small.out, HasSubstr("would start at 20")) << "when";
  EXPECT_THAT(small.out, HasSubstr("node[1-2]")) << "where it would run";
  // Nodes of this cluster have not so many CPUs.
  const auto whole = muster().cli({"submit", "--check", kFinetune});
  EXPECT_EQ(whole.exit, 5) << whole.out;
  EXPECT_TRUE(muster().json({"list"}).empty()) << "nothing was submitted";
  EXPECT_EQ(stage().slurm_jobs(), before) << "to Slurm neither";
}

// Each rank is given a GPU of its own.
TEST_F(SlurmExamples, TheFineTuneTrainsOnTwoNodesAndItsLogIsWherePeopleLook) {
  const auto done = muster().cli(small_finetune({"submit", "--json", "--set", "train.step_delay_ms=800"}));
  ASSERT_EQ(done.exit, 0) << done.err;
  const auto jobs = muster().json({"list"});
  ASSERT_EQ(jobs.size(), 1U);
  const auto job = std::to_string(jobs[0].at("id").get<int>());
  muster().until_step(job, 1);
  for (const int rank : {0, 1, 2, 3}) EXPECT_EQ(gpus_of(job, rank), std::to_string(rank % 2)) << "rank " << rank;
  const auto after = muster().until_state(job, "succeeded");
  EXPECT_EQ(attempt(after, 1).at("nodes"), Json::parse(R"(["node1","node2"])"));
  std::set<int> steps;
  for (const auto& row : muster().metrics(job)) steps.insert(row.at("step").get<int>());
  EXPECT_EQ(steps.size(), 8U);
  EXPECT_EQ(stage().saved_steps(job, 1), (std::vector<int>{4, 8}));
  const auto link = muster().folder() / ("finetune-" + stage().slurm_job(job, 1) + ".out");
  ASSERT_TRUE(std::filesystem::is_symlink(link)) << link;
  EXPECT_EQ(test::read_file(link), muster().cli({"logs", job, "--rank", "0"}).out);
  EXPECT_THAT(test::read_file(link), HasSubstr("step 8"));
  EXPECT_EQ(slurm_cluster::field(slurm(), stage().slurm_job(job, 1), "tres-per-task"), "gres:gpu:1");
}

// The example's own sum in small: with twice the ranks it is half as many accumulated.
TEST_F(SlurmExamples, TheFineTunesTotalBatchIsTheSameWithAnyNumberOfGpus) {
  for (const auto& [nodes, sum] :
       {std::pair("1", "batch 16 = 2 x 2 ranks x 4\n"), std::pair("2", "batch 16 = 2 x 4 ranks x 2\n")}) {
    const auto done = muster().cli(small_finetune({"submit", "--json", "--wait", "--set",
                                                   std::string("resources.nodes=") + nodes, "--set", "train.steps=2"}),
                                   120s);
    ASSERT_EQ(done.exit, 0) << done.err;
    const auto job = std::to_string(muster().json({"list"})[0].at("id").get<int>());
    EXPECT_THAT(muster().cli({"logs", job, "--rank", "0"}).out, HasSubstr(sum));
  }
}

TEST_F(SlurmExamples, ANameThatIsTakenIsLeftAlone) {
  test::write_file(muster().folder() / "notes.txt", "mine\n");
  const auto job =
      muster().submit(shell({.script = "echo out",
                             .ranks_per_node = 2,
                             .more = "[slurm]\noutput = \"" + muster().folder().string() + "/notes.txt\"\n"}));
  muster().until_state(job, "succeeded");
  EXPECT_EQ(test::read_file(muster().folder() / "notes.txt"), "mine\n");
  const auto log = [&] { return test::read_file(muster().data() / "jobs" / job / "attempt-1" / "slurm.log"); };
  EXPECT_TRUE(test::eventually([&] { return log().find("there is a file of that name") != std::string::npos; }, 60s))
      << "it comes by way of srun";
  EXPECT_THAT(log(), AllOf(HasSubstr("slurm.output"), HasSubstr("notes.txt")));
}

// A link for each rank, in folders that did not exist.
TEST_F(SlurmExamples, EachRankHasItsLinkWhenThePatternNamesTasks) {
  const auto job =
      muster().submit(shell({.script = "echo rank $RANK",
                             .nodes = 2,
                             .ranks_per_node = 2,
                             .more = "[slurm]\noutput = \"" + muster().folder().string() + "/out/%x/%j.%2t\"\n"}));
  const auto after = muster().until_state(job, "succeeded");
  const auto folder = muster().folder() / "out" / text(after, "name");
  for (int rank = 0; rank < 4; ++rank) {
    const auto link = folder / (stage().slurm_job(job, 1) + ".0" + std::to_string(rank));
    EXPECT_EQ(test::read_file(link), "rank " + std::to_string(rank) + "\n") << link;
  }
}

TEST_F(SlurmExamples, TheSweepTrainsEachOfItsJobs) {
  const auto done = muster().cli({"submit",
                                  "--json",
                                  "--sweep",
                                  "train.learning_rate=1e-3,3e-3",
                                  "--sweep",
                                  "train.seed=0,1",
                                  "--set",
                                  "train.steps=4",
                                  "--set",
                                  "train.warmup_steps=1",
                                  "--set",
                                  "data.source=fixture",
                                  "--set",
                                  "resources.cpus_per_rank=1",
                                  "--set",
                                  "model.hidden_size=32",
                                  "--set",
                                  "model.intermediate_size=64",
                                  "--set",
                                  "model.num_attention_heads=2",
                                  "--set",
                                  "model.num_hidden_layers=1",
                                  ::test::source_folder() + "/examples/sweep.toml"});
  ASSERT_EQ(done.exit, 0) << done.err;
  const auto sweep = text(Json::parse(done.out), "sweep");
  ASSERT_TRUE(test::eventually(
      [&] {
        const auto jobs = muster().json({"list", "--sweep", sweep});
        return std::ranges::all_of(jobs, [](const Json& job) { return job.at("state") == "succeeded"; });
      },
      120s));
  for (const auto& job : muster().json({"list", "--sweep", sweep})) {
    const auto after = muster().show(std::to_string(job.at("id").get<int>()));
    EXPECT_EQ(after.at("attempts").size(), 1U) << after.dump(1);
  }
  const auto results = muster().json({"results", "--sweep", sweep});
  ASSERT_EQ(results.size(), 4U) << results.dump(1);
  double before = 0;
  for (const auto& result : results) {
    ASSERT_TRUE(result.at("best").is_number()) << results.dump(1);
    EXPECT_GE(result.at("best").get<double>(), before) << "the best first: " << results.dump(1);
    before = result.at("best").get<double>();
  }
  EXPECT_GT(before, results[0].at("best").get<double>()) << "they trained with unlike settings";
  std::istringstream csv(muster().cli({"results", "--sweep", sweep, "--csv"}).out);
  std::string line;
  ASSERT_TRUE(std::getline(csv, line));
  EXPECT_THAT(line, testing::EndsWith("metric,best,best_step,final,final_step,value,value_step,ranked_by"));
  for (const auto& result : results) {
    ASSERT_TRUE(std::getline(csv, line));
    EXPECT_THAT(line,
                testing::MatchesRegex(".*,validation/loss,[0-9.]+,[0-9]+,[0-9.]+,4,[0-9.]+,4,lowest validation/loss"));
    EXPECT_THAT(line, HasSubstr("validation/loss," + result.at("best").dump() + ","));
  }
}

}  // namespace
}  // namespace story
