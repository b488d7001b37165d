// Goal: a run that Slurm could not start on its nodes is those nodes' failure: named, left out, and bounded.
// Method: real Slurm with a prolog that fails on the nodes of our choice; Slurm drains each, puts the job back and
// holds it.
#include <sys/stat.h>

#include <set>

#include "tests/slurm_system/story.h"

namespace story {
namespace {

using testing::HasSubstr;

/// Fails on a node for as long as a file named after it lies beside it.
class Prolog {
 public:
  Prolog() {
    test::write_file(path(), "#!/bin/sh\n[ ! -e \"$(dirname \"$0\")/$SLURMD_NODENAME\" ]\n");
    ::chmod(path().c_str(), 0755);
    ::chmod(folder_.path().c_str(), 0755);
  }
  std::string path() const { return (folder_.path() / "prolog").string(); }
  void fail(const std::string& node) const { test::write_file(folder_.path() / node, ""); }
  void mend() const {
    for (const char* node : {"node1", "node2", "node3", "node4"}) std::filesystem::remove(folder_.path() / node);
  }

 private:
  test::TemporaryFolder folder_;
};

struct Launch;
class SlurmLaunch : public Story<Launch> {
 public:
  static void SetUpTestSuite() {
    prolog_ = std::make_unique<Prolog>();
    set_up({.nodes = 4, .conf = {"Prolog=" + prolog_->path()}}, {"--slurm-poll-ms", "50", "--node-exclusion-s", "600"});
  }
  static void TearDownTestSuite() {
    Story::TearDownTestSuite();
    prolog_.reset();
  }

 protected:
  void TearDown() override {
    prolog_->mend();
    for (const auto& node : drained()) slurm().run({"scontrol", "update", "nodename=" + node, "state=resume"});
    Story::TearDown();
  }
  static std::set<std::string> drained() {
    std::set<std::string> nodes;
    for (const auto* node : {"node1", "node2", "node3", "node4"}) {
      const auto state = slurm().run({"sinfo", "-h", "-N", "-p", "main", "-n", node, "-o", "%T"}).out;
      if (state.starts_with("drain")) nodes.insert(node);
    }
    return nodes;
  }
  /// "node2" of "node node2 is unfit: ..."; what is said of an attempt that ended because of a node.
  static std::string named(const Json& attempt) {
    const auto reason = text(attempt, "reason");
    EXPECT_THAT(reason, HasSubstr("Slurm could not start the job on it (Prolog error)"));
    return reason.substr(5, 5);
  }

  static inline std::unique_ptr<Prolog> prolog_;
};

// The batch script began on the other node, and srun was refused on this one.
// A job that cannot do without it may have it all the same.
TEST_F(SlurmLaunch, ANodeThatCannotStartItsRanksIsLeftOut) {
  prolog_->fail("node2");
  const auto job = muster().submit(shell({.script = "true", .nodes = 2}));
  const auto after = muster().until_state(job, "succeeded");
  ASSERT_EQ(after.at("attempts").size(), 2U) << after.dump(1);
  EXPECT_EQ(text(attempt(after, 1), "cause"), "node_failed") << text(attempt(after, 1), "reason");
  EXPECT_EQ(named(attempt(after, 1)), "node2");
  EXPECT_EQ(drained(), std::set<std::string>{"node2"});
  EXPECT_THAT(muster().cli({"nodes"}).out, HasSubstr("Prolog error"));

  prolog_->mend();
  ASSERT_EQ(slurm().run({"scontrol", "update", "nodename=node2", "state=resume"}).exit, 0);
  const auto everywhere = muster().submit(shell({.script = "true", .nodes = 4}));
  EXPECT_EQ(muster().until_state(everywhere, "succeeded").at("attempts").size(), 1U);
  EXPECT_THAT(muster().daemon_log(), HasSubstr("Slurm refuses it without the nodes lost lately"));
}

// node2 is left out still, where the one before has run.
TEST_F(SlurmLaunch, WhereEveryPrologFailsTheBudgetOfLostNodesEndsIt) {
  for (const auto* node : {"node1", "node2", "node3", "node4"}) prolog_->fail(node);
  const auto job = muster().submit(shell({.script = "true", .requeue = "max_node_failed = 2\n"}));
  const auto after = muster().until_state(job, "failed");
  ASSERT_EQ(after.at("attempts").size(), 3U) << after.dump(1);
  std::set<std::string> nodes;
  for (const std::size_t number : {1, 2, 3}) {
    EXPECT_EQ(text(attempt(after, number), "cause"), "node_failed");
    nodes.insert(named(attempt(after, number)));
  }
  EXPECT_EQ(nodes, drained()) << "each attempt on another node, and no more of them";
  EXPECT_EQ(nodes.size(), 3U);
  EXPECT_THAT(text(after, "reason"), HasSubstr("without anything new in its checkpoint folder (limit 2)"));
  EXPECT_THAT(stage().events(job), HasSubstr("attempt 3 starts in ")) << "not at once";
  EXPECT_TRUE(test::eventually([&] { return stage().slurm_jobs(false).empty(); }, 40s)) << "none is held for ever";
}

}  // namespace
}  // namespace story
