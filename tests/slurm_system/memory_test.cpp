// Goal: what the kernel kills for memory costs that cause's budget, and the rank is named.
// Method: a real Slurm that holds its jobs to their memory by control groups, and ranks that take more.
#include "tests/slurm_system/story.h"

namespace story {
namespace {

using testing::HasSubstr;

struct Memory;
class SlurmMemory : public Story<Memory> {
 public:
  static void SetUpTestSuite() { set_up({.nodes = 2, .memory_limits = true}); }

 protected:
  /// The job that `script` makes of rank 2 of four, once it has failed.
  static Json failed_by(const std::string& script) {
    const auto job = muster().submit(shell({.script = "[ $RANK = 2 ] || exec sleep 600; " + script,
                                            .nodes = 2,
                                            .ranks_per_node = 2,
                                            .requeue = "max_out_of_memory = 1\nmax_failed = 0\n",
                                            .more = "[slurm]\nmem = \"200MiB\"\n"}));
    return muster().until_state(job, "failed");
  }
  static void expect_out_of_memory_twice(const Json& job, const std::string& how) {
    ASSERT_EQ(job.at("attempts").size(), 2U) << job.dump(1);
    for (const std::size_t number : {1, 2}) {
      const auto& one = attempt(job, number);
      EXPECT_EQ(text(one, "cause"), "out_of_memory") << text(one, "reason");
      EXPECT_EQ(one.at("rank"), 2);
      EXPECT_THAT(text(one, "reason"), HasSubstr("rank 2 ran out of memory (" + how + ")"));
    }
    EXPECT_THAT(text(job, "reason"), HasSubstr("2 times without anything new in its checkpoint folder (limit 1)"));
  }
  static constexpr const char* kTakesTooMuch = "python3 -c 'print(len(b\"x\" * (400 << 20)))'";
};

TEST_F(SlurmMemory, ARankThatTakesMoreThanItsJobAskedForRanOutOfMemory) {
  expect_out_of_memory_twice(failed_by(std::string("exec ") + kTakesTooMuch), "killed by SIGKILL");
}

TEST_F(SlurmMemory, SoDidOneThatFailsForWhatItStarted) {
  expect_out_of_memory_twice(failed_by(std::string(kTakesTooMuch) + "; exit 1"), "exited with 1");
}

TEST_F(SlurmMemory, AndNoneThatFailsByItself) {
  const auto after = failed_by("exit 1");
  ASSERT_EQ(after.at("attempts").size(), 1U) << after.dump(1);
  EXPECT_EQ(text(attempt(after, 1), "cause"), "failed");
}

TEST_F(SlurmMemory, ATrainingRunThatDoesNotFitIsToldSo) {
  const auto job =
      muster().submit(training({.requeue = "max_out_of_memory = 0\nmax_failed = 0\n", .more = "mem = \"48MiB\"\n"}));
  const auto after = muster().until_state(job, "failed");
  EXPECT_EQ(text(attempt(after, 1), "cause"), "out_of_memory") << text(attempt(after, 1), "reason");
}

}  // namespace
}  // namespace story
