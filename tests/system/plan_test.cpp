// Goal: people learn before a submission what a training needs, and a job that cannot fit is refused.
// Method: the real programs; job files whose [slurm] says how much memory a node has.
#include <gmock/gmock.h>

#include "system/world.h"

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

}  // namespace
}  // namespace test
