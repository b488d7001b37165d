#include <gmock/gmock.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/environment/rank_variables.h"
#include "spec/variables.h"

namespace agent::environment {
namespace {

using ::testing::Contains;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

TEST(VisibleDevices, AreARanksSliceOfAll) {
  EXPECT_EQ(visible_devices("", 1, 0), "0");
  EXPECT_EQ(visible_devices("", 2, 1), "2,3");
  EXPECT_EQ(visible_devices("4,GPU-5,6,7", 2, 0), "4,GPU-5");
  EXPECT_EQ(visible_devices("4,GPU-5,6,7", 2, 1), "6,7");
  EXPECT_EQ(visible_devices("4,5", 1, 2), std::nullopt);
}

TEST(RankVariables, TellARankItsPlaceAsTorchrunDoes) {
  RankPlace place{.rank = 5, .world_size = 8, .local_rank = 1, .local_world_size = 4, .node_rank = 1, .nodes = 2};
  place.node_names = {"n7", "n3"};
  const spec::Environment expected{{"RANK", "5"},
                                   {"WORLD_SIZE", "8"},
                                   {"LOCAL_RANK", "1"},
                                   {"LOCAL_WORLD_SIZE", "4"},
                                   {"NODE_RANK", "1"},
                                   {"GROUP_RANK", "1"},
                                   {"GROUP_WORLD_SIZE", "2"},
                                   {"ROLE_NAME", "default"},
                                   {"ROLE_RANK", "5"},
                                   {"ROLE_WORLD_SIZE", "8"},
                                   {"MUSTER_NODES", "2"},
                                   {"MUSTER_NODELIST", "n7,n3"},
                                   {"MUSTER_LOCAL_RANK", "1"}};
  EXPECT_EQ(rank_variables(place), expected);
}

TEST(RankVariables, ACommandThatStartsItsRanksItselfIsToldOfNodesAlone) {
  const RankPlace place{.rank = 1, .world_size = 2, .node_rank = 1, .nodes = 2, .node_names = {"n7", "n3"}};
  const spec::Environment expected{{"NODE_RANK", "1"},    {"PET_NODE_RANK", "1"},       {"PET_NNODES", "2"},
                                   {"MUSTER_NODES", "2"}, {"MUSTER_NODELIST", "n7,n3"}, {"MUSTER_LOCAL_RANK", "0"}};
  EXPECT_EQ(own_launcher_variables(place), expected);
  for (const auto& [name, value] : rank_variables(place)) {
    EXPECT_EQ(tells_of_a_rank(name), !expected.contains(name)) << name;
  }
  for (const auto& [name, value] : torchelastic_variables(7, 1, 3)) EXPECT_TRUE(tells_of_a_rank(name)) << name;
  EXPECT_TRUE(tells_of_a_rank("SLURM_NTASKS")) << "Lightning takes the program for one of srun's ranks";
  EXPECT_FALSE(tells_of_a_rank("SLURM_JOB_ID"));
}

TEST(RankVariables, TorchrunMeetsWhereTheJobDoes) {
  const spec::Environment expected{{"MASTER_ADDR", "10.0.0.1"},
                                   {"MASTER_PORT", "1234"},
                                   {"PET_MASTER_ADDR", "10.0.0.1"},
                                   {"PET_MASTER_PORT", "1234"}};
  EXPECT_EQ(meeting_variables("10.0.0.1", "1234"), expected);
}

TEST(RankVariables, NodesThatAreNotKnownAreNotNamed) {
  EXPECT_THAT(rank_variables({}), Not(Contains(Key("MUSTER_NODELIST"))));
}

TEST(TorchelasticVariables, CountTheAttemptsBeforeThisOne) {
  const spec::Environment expected{
      {"TORCHELASTIC_RUN_ID", "muster-7"}, {"TORCHELASTIC_RESTART_COUNT", "2"}, {"TORCHELASTIC_MAX_RESTARTS", "4"}};
  EXPECT_EQ(torchelastic_variables(7, 3, 4), expected);
}

TEST(Submitter, GivesWhatDecidesWhichProgramsAndLibrariesAreFound) {
  const spec::Environment here{{"PATH", "/venv/bin"},      {"VIRTUAL_ENV", "/venv"}, {"PYTHONPATH", "/lib"},
                               {"LD_LIBRARY_PATH", "/so"}, {"CONDA_PREFIX", "/c"},   {"HOME", "/home/ada"},
                               {"AWS_SECRET", "x"},        {"MY_PATH", "x"}};
  const spec::Environment taken{{"PATH", "/venv/bin"},
                                {"VIRTUAL_ENV", "/venv"},
                                {"PYTHONPATH", "/lib"},
                                {"LD_LIBRARY_PATH", "/so"},
                                {"CONDA_PREFIX", "/c"}};
  EXPECT_EQ(spec::taken_from(here), taken);
}

TEST(Secrets, AreKnownByTheirNamesOrByAPasswordInAnAddress) {
  for (const auto* name : {"WANDB_API_KEY", "HF_TOKEN", "hf_token", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "APIKEY",
                           "GITHUBTOKEN", "MY_SECRETS_FILE", "SSH_PASSPHRASE", "GOOGLE_CREDENTIALS", "DB_PASS",
                           "mysql_pwd", "PROXY_AUTH", "DB_PASS_RO", "PASS"}) {
    EXPECT_TRUE(spec::is_secret(name, "x")) << name;
    EXPECT_FALSE(spec::is_secret(name, "")) << name << ": there is nothing to hide";
  }
  for (const auto* name : {"TOKENIZERS_PARALLELISM", "MAX_TOKENS", "KEYBOARD", "PATH", "LR", "SECRETARY", "PWD",
                           "OLDPWD", "BYPASS", "COMPASS_DIR", "OAUTH_HOST", "SSH_AUTH_SOCK"}) {
    EXPECT_FALSE(spec::is_secret(name, "x")) << name;
  }
  EXPECT_TRUE(spec::is_secret("DATABASE", "postgres://ada:word@host/db"));
  EXPECT_FALSE(spec::is_secret("PROXY", "http://host:8080/a@b"));
  EXPECT_TRUE(spec::is_secret("INDEX", "https://ghp_abc@github.com/x/y"));
  EXPECT_TRUE(spec::is_secret("INDEX", "git+http://ghp_abc@host"));
  EXPECT_FALSE(spec::is_secret("REMOTE", "ssh://git@host/x")) << "a user's name";
  EXPECT_FALSE(spec::is_secret("PAGE", "https://host/x?to=a@b"));
  EXPECT_FALSE(spec::is_secret("PAGE", "https://host?to=a@b"));
  EXPECT_EQ(spec::shown_value("HF_TOKEN", "hf_abc"), "********");
  EXPECT_EQ(spec::shown_value("LR", "1e-3"), "1e-3");
}

TEST(LoginEnvironment, IsTheUsersAndNotThisProcesss) {
  ::setenv("HOME", "/elsewhere", 1);
  ::setenv("MUSTER_TEST_OWN", "secret", 1);
  const auto& all = login_environment();
  for (const auto* name : {"HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG"}) {
    EXPECT_THAT(all, Contains(Key(name)));
  }
  EXPECT_THAT(all, Contains(Pair("PYTHONUNBUFFERED", "1")));
  EXPECT_THAT(all, Not(Contains(Pair("HOME", "/elsewhere"))));
  EXPECT_EQ(all.size(), 7U);
}

}  // namespace
}  // namespace agent::environment
