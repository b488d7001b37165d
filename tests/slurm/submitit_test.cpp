// submitit's style, tested without submitit. submitit_peers_test.cpp compares with the real one.
#include "tests/slurm/submitit/submitit_style.h"

#include <gmock/gmock.h>

#include "tests/slurm/submitit/python_text.h"

namespace slurm {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string script(const SubmititParameters& call, std::uint64_t tasks = 1) {
  auto result = render_submitit({"/logs", "run", tasks}, {call});
  if (const auto* refusal = std::get_if<SubmititRefusal>(&result)) ADD_FAILURE() << refusal->why.front();
  return std::holds_alternative<std::string>(result) ? std::get<std::string>(result) : "";
}

std::vector<std::string> refusal(const SubmititParameters& call) {
  auto result = render_submitit({"/logs", "run", 1}, {call});
  return std::holds_alternative<SubmititRefusal>(result) ? std::get<SubmititRefusal>(result).why
                                                         : std::vector<std::string>{};
}

TEST(Submitit, ItsDefaultsAreItsDefaults) {
  EXPECT_EQ(script({}), R"(#!/bin/bash

# Parameters
#SBATCH --error=/logs/%j_0_log.err
#SBATCH --job-name=submitit
#SBATCH --nodes=1
#SBATCH --open-mode=append
#SBATCH --output=/logs/%j_0_log.out
#SBATCH --signal=USR2@90
#SBATCH --time=5
#SBATCH --wckey=submitit

# command
export SUBMITIT_EXECUTOR=slurm
srun --unbuffered --output /logs/%j_%t_log.out --error /logs/%j_%t_log.err run
)");
}

TEST(Submitit, ABatchIsAnArrayAndABatchOfOneIsNone) {
  EXPECT_THAT(script({}, 3), HasSubstr("#SBATCH --array=0-2%3\n"));
  EXPECT_THAT(script({}, 3), HasSubstr("--output=/logs/%A_%a_0_log.out\n"));
  EXPECT_THAT(script({}, 300), HasSubstr("#SBATCH --array=0-299%256\n"));
  EXPECT_THAT(script({{"slurm_array_parallelism", std::int64_t{2}}}, 3), HasSubstr("#SBATCH --array=0-2%2\n"));
  EXPECT_THAT(script({}, 1), Not(HasSubstr("array")));
}

TEST(Submitit, UnknownNamesComeWithTheValidOnes) {
  const auto why = refusal({{"slurm_foo", std::int64_t{1}}});
  EXPECT_THAT(why, Contains(HasSubstr("'slurm_foo'")));
  EXPECT_THAT(why, Contains(HasSubstr("partition, qos, setup")));
  EXPECT_THAT(why, Contains(HasSubstr("timeout_min, mem_gb")));
  EXPECT_THAT(refusal({{"foo", true}}), Contains(HasSubstr("needs the prefix of an executor")));
  EXPECT_THAT(refusal({{"chronos_x", true}}), Contains(HasSubstr("unknown executor 'chronos'")));
  EXPECT_THAT(refusal({{"nodes", "2"}}), Contains(HasSubstr("'nodes' must be a whole number")));
}

TEST(Submitit, OtherClustersAreLeftOutAndSlurmsOwnWins) {
  EXPECT_EQ(script({{"local_setup", SubmititList{"x"}}, {"debug_nodes", std::int64_t{9}}}), script({}));
  EXPECT_THAT(script({{"slurm_time", std::int64_t{7}}, {"timeout_min", std::int64_t{99}}}), HasSubstr("--time=7\n"));
}

TEST(Submitit, MemoryIsConverted) {
  EXPECT_THAT(script({{"mem_gb", 3.5}}), HasSubstr("--mem=3584MB\n"));
  EXPECT_THAT(script({{"mem_gb", std::int64_t{4}}}), HasSubstr("--mem=4GB\n"));
  EXPECT_THAT(script({{"slurm_mem", "7G"}}), HasSubstr("--mem=7G\n"));
}

TEST(Submitit, AFolderMustBeAbsolute) {
  EXPECT_TRUE(std::holds_alternative<SubmititRefusal>(render_submitit({"logs", "run", 1}, {})));
  EXPECT_TRUE(std::holds_alternative<SubmititRefusal>(render_submitit({"/logs", "run", 0}, {})));
}

TEST(PythonText, ValuesReadAsPythonWritesThem) {
  const std::vector<std::pair<SubmititValue, const char*>> values = {{0.1, "0.1"},
                                                                     {100.0, "100.0"},
                                                                     {1e15, "1000000000000000.0"},
                                                                     {1e16, "1e+16"},
                                                                     {1e-5, "1e-05"},
                                                                     {0.0001, "0.0001"},
                                                                     {-0.0, "-0.0"},
                                                                     {true, "True"},
                                                                     {std::int64_t{-5}, "-5"},
                                                                     {SubmititValue(), "None"}};
  for (const auto& [value, text] : values) EXPECT_EQ(python_str(value), text);
}

}  // namespace
}  // namespace slurm
