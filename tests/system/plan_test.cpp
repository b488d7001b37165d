// Goal: people learn before a submission what a training needs, and a job that cannot fit is refused.
// Method: the real programs; job files whose [slurm] says how much memory a node has.
#include <gmock/gmock.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/places.h"
#include "tests/system/world.h"

namespace test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A training of two ranks on a node with that much memory.
std::string job_of(const std::string& memory) {
  return training_job({.steps = 6, .more = "\n[slurm]\nmem = \"" + memory + "\"\n"});
}

class Plan : public ::testing::Test {
 protected:
  std::string write(const std::string& text) {
    const auto file = world_.folder() / "job.toml";
    write_file(file, text);
    return file;
  }
  World world_;
};

TEST_F(Plan, SaysWhatARankAndANodeNeed) {
  const auto file = write(job_of("1GiB"));
  const auto table = world_.cli({"plan", file});
  EXPECT_EQ(table.exit, 0) << table.err;
  EXPECT_THAT(table.out, AllOf(HasSubstr("tensors at the peak"), HasSubstr("sent in a step"),
                               HasSubstr("estimate: 16 bytes a parameter"), HasSubstr("(slurm.mem = 1GiB for 2 ranks)"),
                               HasSubstr("verdict  fits")));
  const auto plan = world_.json({"plan", file});
  EXPECT_EQ(plan.at("ranks"), 2);
  EXPECT_TRUE(plan.at("fits").get<bool>());
  EXPECT_EQ(plan.at("limit_bytes"), 512 << 20);
  EXPECT_EQ(plan.at("estimates").at("16").get<std::int64_t>(), plan.at("parameters").get<std::int64_t>() * 16 / 2);
  EXPECT_GT(plan.at("tensor_bytes").get<std::int64_t>(), plan.at("state_bytes").get<std::int64_t>());
}

TEST_F(Plan, OfASweepHasEachKindOfJobOnce) {
  const auto file = write(job_of("1GiB"));
  const auto plans =
      world_.json({"plan", file, "--sweep", "train.seed=0..3", "--sweep", "fsdp.activation_checkpointing=none,block"});
  ASSERT_EQ(plans.size(), 2U);
  EXPECT_GT(plans[0].at("activation_bytes"), plans[1].at("activation_bytes"));
}

TEST_F(Plan, SaysWhatWouldFit) {
  const auto done = world_.cli({"plan", write(job_of("1MiB"))});
  EXPECT_EQ(done.exit, 1) << done.err;
  EXPECT_THAT(done.out, HasSubstr("does not fit"));
  const auto unknown = world_.cli({"plan", write(training_job({}))});
  EXPECT_EQ(unknown.exit, 0) << unknown.err;
  EXPECT_THAT(unknown.out, HasSubstr("verdict  - (no limit is known"));
  const auto command = world_.cli({"plan", write(shell_job("true"))});
  EXPECT_EQ(command.exit, 2);
  EXPECT_THAT(command.err, HasSubstr("muster cannot see what a command needs"));
}

TEST_F(Plan, IsMadeBeforeASubmissionUnlessItIsForced) {
  world_.start_daemon();
  const auto file = write(job_of("1MiB"));
  const auto refused = world_.cli({"submit", file});
  EXPECT_EQ(refused.exit, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("does not fit"), HasSubstr("slurm.mem = 1MiB for 2 ranks"),
                                 HasSubstr("--force submits it all the same")));
  EXPECT_TRUE(world_.json({"list"}).empty());
  const auto forced = world_.cli({"submit", file, "--force", "--json"});
  ASSERT_EQ(forced.exit, 0) << forced.err;
  const auto job = Json::parse(forced.out).at("job_id").dump();
  world_.until_state(job, "succeeded");
  EXPECT_THAT(world_.cli({"spec", job}).out, HasSubstr("check_memory = false"));
}

/// The plan of a job file of examples/recipes/full, where neither model nor data are on this machine.
Json plan_of_full_size(World& world, const std::string& name, const std::vector<std::string>& more = {}) {
  std::vector<std::string> words{"plan", ::test::source_folder() + "/examples/recipes/full/" + name + ".toml",
                                 "--json"};
  words.insert(words.end(), more.begin(), more.end());
  const auto done = world.cli(words);
  EXPECT_EQ(done.exit, 0) << name << ": " << done.err;
  return Json::parse(done.out);
}

// The arithmetic that people do before they ask for GPUs: 16 bytes a parameter, over the ranks.
TEST_F(Plan, OfAFullSizeJobFileNeedsNeitherItsModelNorItsData) {
  const auto pythia = plan_of_full_size(world_, "pythia");
  ASSERT_EQ(pythia.size(), 2U) << "one for each strategy";
  for (const auto& plan : pythia) {
    EXPECT_EQ(plan.at("parameters"), 1'011'781'632);
    EXPECT_EQ(plan.at("estimates").at("16"), 16LL * 1'011'781'632 / 2) << "7.54 GiB; 7.45 GiB for a round billion";
    EXPECT_THAT(plan.at("note").get<std::string>(),
                AllOf(HasSubstr("model.pretrained = \"/models/pythia-1b\": config.json cannot be read here"),
                      HasSubstr("model.use_parallel_residual = true")));
  }
  // DDP keeps all of it on each rank, FSDP a half: fp32 weights, gradients and both states.
  EXPECT_EQ(pythia[0].at("parameter_bytes").get<std::int64_t>() + pythia[0].at("state_bytes").get<std::int64_t>(),
            12LL * 1'011'781'632);
  const auto sharded =
      pythia[1].at("parameter_bytes").get<std::int64_t>() + pythia[1].at("state_bytes").get<std::int64_t>();
  EXPECT_NEAR(static_cast<double>(sharded), 6.0 * 1'011'781'632, 0.005 * 6.0 * 1'011'781'632);
  const auto llama = plan_of_full_size(world_, "chess");
  EXPECT_EQ(llama.at("parameters"), 6'738'546'688);
  EXPECT_EQ(llama.at("estimates").at("16"), 16LL * 6'738'546'688 / 8);
  EXPECT_EQ(plan_of_full_size(world_, "t5").at("parameters"), 222'903'552);
  EXPECT_EQ(plan_of_full_size(world_, "bert", {"--set", "data.prepared=/no/data"}).at("parameters"), 109'483'778);
  EXPECT_GT(plan_of_full_size(world_, "chess-lora").at("parameters").get<std::int64_t>(), 6'738'546'688);
  const auto masked_lm = plan_of_full_size(world_, "masked-lm");
  EXPECT_EQ(masked_lm.at("parameters"), 109'514'298) << "of transformers' BertForMaskedLM";
  EXPECT_EQ(masked_lm.at("note"), "") << "it starts from scratch";
  EXPECT_EQ(plan_of_full_size(world_, "dino").at("note"), "") << "it starts from scratch";
}

/// A row of the table in docs/recipes.md that begins so: the cells behind the first.
std::vector<std::string> documented(const std::string& training) {
  std::istringstream lines(read_file(::test::source_folder() + "/docs/recipes.md"));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| " + training + " |")) continue;
    std::vector<std::string> cells;
    std::istringstream row(line.substr(training.size() + 4));
    for (std::string cell; std::getline(row, cell, '|');) cells.push_back(cell);
    return cells;
  }
  return {};
}

/// "29.4 GiB" in bytes; what stands behind the unit is left out. 0: it is no such text.
double bytes_of(const std::string& text) {
  std::istringstream words(text);
  double number = 0;
  std::string unit;
  words >> number >> unit;
  return unit == "GiB" ? number * (1 << 30) : 0;
}

// The memory that a GPU must have is read off this table before people ask for GPUs.
TEST_F(Plan, IsWhatTheDocumentSaysOfTheLargeModels) {
  const auto pythia = plan_of_full_size(world_, "pythia");
  ASSERT_EQ(pythia.size(), 2U);
  const std::pair<std::string, Json> rows[] = {
      {"Pythia-1B, two GPUs, `no_shard` (DDP)", pythia[0]},
      {"Pythia-1B, two GPUs, `full_shard`", pythia[1]},
      {"CodeLlama-7B, eight GPUs, `full_shard`", plan_of_full_size(world_, "chess")}};
  for (const auto& [training, plan] : rows) {
    SCOPED_TRACE(training);
    const auto cells = documented(training);
    ASSERT_GE(cells.size(), 4U) << "docs/recipes.md has no such row";
    std::string parameters = cells[0];
    std::erase_if(parameters, [](char c) { return c == ',' || c == ' '; });
    EXPECT_EQ(parameters, plan.at("parameters").dump());
    const auto planned = [&](const char* member) { return plan.at(member).get<double>(); };
    const auto agrees = [](const std::string& cell, double bytes) {
      EXPECT_NEAR(bytes_of(cell), bytes, 0.01 * bytes) << cell << " in docs/recipes.md";
    };
    agrees(cells[1], plan.at("estimates").at("16").get<double>());
    agrees(cells[2], planned("parameter_bytes") + planned("gradient_bytes") + planned("state_bytes"));
    agrees(cells[3], planned("tensor_bytes"));
  }
}

TEST_F(Plan, NamesTheSizesThatItCannotReadAnywhere) {
  const auto done = world_.cli(
      {"plan", write("name = \"lost\"\n[model]\npretrained = \"/no/model\"\n[data]\nsource = \"fixture\"\n")});
  EXPECT_EQ(done.exit, 2);
  EXPECT_THAT(done.err, AllOf(HasSubstr("model.pretrained = \"/no/model\": cannot read config.json there"),
                              HasSubstr("plan where the folder is, or write the sizes into the job file, too: ")));
}

}  // namespace
}  // namespace test
