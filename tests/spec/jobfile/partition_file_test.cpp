// Goal: every key of a partition is read, and each mistake is reported with its line and a remedy.
#include "spec/jobfile/partition_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace jobfile {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(PartitionFile, SaysEverythingAboutAPartition) {
  const auto file = parse_partition_file(R"(
[partition.big]
users = ["ann", "bob"]
groups = ["ml"]
max_nodes = 4
max_time = "1d12h"
default = true
preemptible = false
requeue.max_failed = 0
requeue.max_preempted = 100
health_check = "nvidia-smi -L"
setup = ["module load cuda", "ulimit -n 4096"]
[partition.all]
)",
                                         "p.toml");
  ASSERT_THAT(file.problems, IsEmpty());
  ASSERT_EQ(file.policies.size(), 2U);
  EXPECT_EQ(file.policies[0].name(), "all");
  const auto& big = file.policies[1];
  EXPECT_THAT(big.users(), ElementsAre("ann", "bob"));
  EXPECT_EQ(big.max_time_ms(), 129'600'000);
  EXPECT_TRUE(big.is_default());
  EXPECT_TRUE(big.has_preemptible());
  EXPECT_TRUE(big.requeue().has_max_failed());
  EXPECT_EQ(big.requeue().max_preempted(), 100U);
  EXPECT_THAT(big.setup(), ElementsAre("module load cuda", "ulimit -n 4096"));
}

struct Slip {
  std::string text, says;
};

TEST(PartitionFile, TellsEachSlipWithItsPlace) {
  for (const auto& [text, says] : {
           Slip{"[partition.a]\nmax_nodes = 0\n", "p.toml:2:13: max_nodes \"0\": want a whole number from 1 to"},
           Slip{"[partition.a]\nmax_nodes = \"4\"\n", "p.toml:2:13: max_nodes \"4\": want a whole number"},
           Slip{"[partition.a]\nmax_time = 12\n", "p.toml:2:12: max_time \"12\": want a duration such as 12h"},
           Slip{"[partition.a]\nmax_time = \"30s\"\n", "p.toml:2:12: max_time \"30s\": want a duration"},
           Slip{"[partition.a]\nusers = \"ann\"\n", "p.toml:2:9: users \"ann\": want an array of texts"},
           Slip{"[partition.a]\nusers = [\"an n\"]\n", "p.toml:2:9: users"},
           Slip{"[partition.a]\nusers = []\n",
                "p.toml:2:9: users \"[]\": want at least one name; leave the key out to let everybody in"},
           Slip{"[partition.a]\nusers = [\"ann\"]\ngroups = []\n",
                "p.toml:3:10: groups \"[]\": want at least one name"},
           Slip{"[partition.a]\nmax_node = 1\n", "p.toml:2:1: max_node: unknown key, did you mean max_nodes"},
           Slip{"[partition.a]\nrequeue.max_faild = 1\n",
                "requeue.max_faild: unknown key, did you mean requeue.max_failed"},
           Slip{"[partition.a]\n\"requeue.max_failed\" = 1\n", "p.toml:2:1: requeue.max_failed: unknown key"},
           Slip{"[partition.a]\nmax_time = \"1h\"\ndefault_time = \"2h\"\n",
                "p.toml:1:12: default_time \"2h\": want at most max_time, 1h"},
           Slip{"[partition.a]\ndefault = true\n[partition.b]\ndefault = true\n",
                "p.toml:3:12: default \"true\": partition a is the default already; keep one of them"},
           Slip{"[partitions.a]\n", "p.toml:1:2: partitions: want [partition.NAME] tables and nothing else"},
           Slip{"[partition.\"a b\"]\n", "want a table whose name is 1 to 64 letters"},
           Slip{"[partition.a\n", "p.toml:1:13: not TOML:"},
       }) {
    const auto file = parse_partition_file(text, "p.toml");
    ASSERT_EQ(file.problems.size(), 1U) << text;
    EXPECT_THAT(file.problems.front(), HasSubstr(says));
  }
}

TEST(PartitionFile, TellsAllSlipsAtOnceInTheirOrder) {
  const auto file =
      parse_partition_file("[partition.b]\nmax_ranks = 0\nmax_nodes = 0\n[partition.a]\nqos = 1\n", "p.toml");
  EXPECT_THAT(file.problems, ElementsAre(HasSubstr("p.toml:2:13"), HasSubstr("p.toml:3:13"), HasSubstr("p.toml:5:1")));
}

}  // namespace
}  // namespace jobfile
