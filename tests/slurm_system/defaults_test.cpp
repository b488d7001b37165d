// Goal: a partition's default QOS and constraint reach a Slurm that has them, the job's own come first, and what Slurm
// does not have fails the job in Slurm's words; a sweep larger than Slurm lets into its queue goes in parts.
// Method: real Slurm whose accounting enforces QOS and limits, where one node has a feature and the user may use two
// QOS.
#include "tests/slurm_system/story.h"

namespace story {
namespace {

using testing::HasSubstr;

struct Defaults;
class SlurmDefaults : public Story<Defaults> {
 public:
  static void SetUpTestSuite() {
    set_up({.nodes = 2, .accounting = true, .conf = {"AccountingStorageEnforce=associations,limits,qos"}});
  }

 protected:
  static void must(const std::vector<std::string>& command) {
    const auto done = slurm().run(command);
    ASSERT_EQ(done.exit, 0) << testing::PrintToString(command) << done.out << done.err;
  }
  static std::string submit(const std::string& own = {}) {
    return muster().submit(shell({.script = "sleep 600", .more = own.empty() ? "" : "[slurm]\n" + own + "\n"}));
  }
  static std::string told(const std::string& job, const std::string& key) {
    return slurm_cluster::field(slurm(), stage().until_handed_over(job), key);
  }
};

TEST_F(SlurmDefaults, APartitionsQosAndConstraintReachSlurmAndTheJobsOwnComeFirst) {
  for (const char* qos : {"usual", "urgent"}) must({"sacctmgr", "-i", "add", "qos", qos});
  must({"sacctmgr", "-i", "modify", "user", "root", "set", "qos+=usual,urgent"});
  must({"scontrol", "update", "nodename=node2", "AvailableFeatures=big", "ActiveFeatures=big"});
  const auto opened = muster().cli({"admin", "partition", "add", "main", "--default", "true", "--default-qos", "usual",
                                    "--default-constraint", "big"});
  ASSERT_EQ(opened.exit, 0) << opened.err;

  const auto usual = submit(), urgent = submit("qos = \"urgent\"");
  EXPECT_EQ(told(usual, "QOS"), "usual");
  EXPECT_EQ(told(usual, "Feature"), "big");
  EXPECT_EQ(told(urgent, "QOS"), "urgent");
  EXPECT_EQ(stage().node_of_rank(usual, 0), "node2");

  for (const auto& [own, says] : {std::pair{"qos = \"mine\"", "Invalid qos specification"},
                                  std::pair{"constraint = \"tiny\"", "Invalid feature specification"}}) {
    const auto refused = submit(own);
    const auto after = muster().until_state(refused, "failed");
    EXPECT_THAT(text(after, "reason"), HasSubstr(says));
    EXPECT_THAT(muster().cli({"why", refused}).out, HasSubstr("Correct in the job file"));
  }
}

// Slurm counts every element of an array when it is submitted, and would never take one of five.
TEST_F(SlurmDefaults, ASweepLargerThanItsUsersPlacesInTheQueueGoesInParts) {
  must({"sacctmgr", "-i", "modify", "user", "root", "set", "MaxSubmitJobs=3"});
  const auto file = muster().folder() / "sweep.toml";
  test::write_file(file, shell({.script = "true", .more = "[env]\nSTEP = \"0\"\n"}));
  const auto done = muster().cli({"submit", file.string(), "--sweep", "env.STEP=0..4"});
  ASSERT_EQ(done.exit, 0) << done.err;
  const auto jobs = jobs_of(muster(), done);
  ASSERT_EQ(jobs.size(), 5U);
  for (const auto& job : jobs) {
    const auto after = muster().until_state(std::to_string(job.at("id").get<int>()), "succeeded", 120s);
    EXPECT_EQ(after.at("attempts").size(), 1U) << after.dump(1);
  }
  must({"sacctmgr", "-i", "modify", "user", "root", "set", "MaxSubmitJobs=-1"});
}

}  // namespace
}  // namespace story
