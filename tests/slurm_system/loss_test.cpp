// Goal: what is lost on a cluster (a node, a slurmstepd, a task, a rank) is known in seconds, costs one attempt, and
// never leaves two attempts writing.
// Method: real Slurm, musterd, muster-agent and workers; power cuts and SIGKILL; the judge is an uninterrupted run.
#include <signal.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <sstream>

#include "tests/slurm_system/story.h"

namespace story {
namespace {

using testing::HasSubstr;

/// Slurm gives a node up after so long, and asks it three times meanwhile. So two thirds pass at least from a power cut
/// until Slurm knows.
constexpr auto kSlurmdTimeout = 60s, kBeforeSlurmKnows = 40s;

struct Loss;
class SlurmLoss : public Story<Loss> {
 public:
  static void SetUpTestSuite() { set_up({.nodes = 4, .slurmd_timeout = kSlurmdTimeout}); }

 protected:
  static Json under_way(const std::string& job) { return muster().until_step(job, 24); }
  static Json expect_resumed(const std::string& job, const Training& what, const std::string& cause) {
    const auto after = muster().until_state(job, "succeeded");
    EXPECT_EQ(after.at("attempts").size(), 2U) << after.dump(1);
    EXPECT_EQ(text(attempt(after, 1), "cause"), cause) << text(attempt(after, 1), "reason");
    const auto saved = stage().saved_steps(job, 1);
    const int kept = saved.empty() ? 0 : saved.back();
    EXPECT_EQ(attempt(after, 2).at("resumed_from_step"), kept);
    EXPECT_EQ(kept % what.every_steps, 0) << "nobody could save";
    EXPECT_EQ(stage().submissions_of(job, 2), 1);
    stage().expect_model_of_calm_run(job, what);
    return after;
  }
  /// A checkpoint of attempt 2 would give the budget back that attempt 1 has spent.
  static constexpr int kNoSaveBetween = 300;
  /// Attempt 1 loses the node of rank 3, attempt 2 that of rank 0, where batch script and srun are, too. `lose(node,
  /// attempt)` returns when that attempt is over.
  static Json expect_node_failures(const std::string& job, const Training& what,
                                   const std::function<void(const std::string&, std::size_t)>& lose) {
    under_way(job);
    std::size_t number = 1;
    for (const std::size_t rank : {3, 0}) {
      SCOPED_TRACE("the node of rank " + std::to_string(rank));
      stage().until_trains(job, number);
      lose(stage().node_of_rank(job, rank), number);
      ++number;
    }
    const auto after = muster().until_state(job, "succeeded");
    EXPECT_EQ(after.at("attempts").size(), 3U) << after.dump(1);
    int kept = 0;
    for (number = 1; number <= 2; ++number) {
      EXPECT_EQ(text(attempt(after, number), "cause"), "node_failed") << text(attempt(after, number), "reason");
      const auto saved = stage().saved_steps(job, static_cast<int>(number));
      kept = saved.empty() ? kept : saved.back();
      EXPECT_EQ(kept % what.every_steps, 0) << "nobody could save";
      EXPECT_EQ(attempt(after, number + 1).at("resumed_from_step"), kept);
      EXPECT_EQ(stage().submissions_of(job, static_cast<int>(number) + 1), 1);
      EXPECT_THAT(stage().events(job), HasSubstr(std::to_string(number) + " of 10"));
    }
    EXPECT_GE(kept, what.every_steps);
    stage().expect_model_of_calm_run(job, what);
    return after;
  }
  static std::vector<pid_t> ranks_of(const std::string& job, int attempt) {
    std::vector<pid_t> pids;
    for (int rank = 0; rank < 4; ++rank) pids.push_back(stage().pid_of_rank(job, attempt, rank));
    return pids;
  }
  static std::vector<std::string> excluded_nodes(const std::string& slurm_job) {
    const auto said = slurm().run({"scontrol", "show", "job", slurm_job}).out;
    const auto begin = said.find("ExcNodeList=") + 12;
    std::istringstream names(
        slurm()
            .run({"scontrol", "show", "hostnames", said.substr(begin, said.find_first_of(" \n", begin) - begin)})
            .out);
    return {std::istream_iterator<std::string>(names), {}};
  }
  static void expect_gone(const std::vector<pid_t>& pids) {
    for (const pid_t pid : pids) {
      ASSERT_GT(pid, 1);
      EXPECT_TRUE(test::eventually([&] { return ::kill(pid, 0) != 0; }, 5s)) << "pid " << pid << " lives on";
    }
  }
};

TEST_F(SlurmLoss, ARankKilledIsKnownByItsSignal) {
  const Training what;
  const auto job = muster().submit(training(what));
  under_way(job);
  const auto old = ranks_of(job, 1);
  ASSERT_EQ(::kill(old[3], SIGKILL), 0);
  stage().until_ended(job, 1);
  const auto after = expect_resumed(job, what, "failed");
  EXPECT_EQ(attempt(after, 1).at("signal"), SIGKILL);
  EXPECT_EQ(attempt(after, 1).at("rank"), 3);
  expect_gone(old);
}

TEST_F(SlurmLoss, ARankThatIsStoppedIsSilent) {
  const Training what;
  const auto job = muster().submit(training(what));
  under_way(job);
  const auto old = ranks_of(job, 1);
  ASSERT_EQ(::kill(old[2], SIGSTOP), 0);
  const auto after = expect_resumed(job, what, "rank_silent");
  EXPECT_THAT(text(attempt(after, 1), "reason"), HasSubstr("stopped"));
  expect_gone(old);
}

// Which of two is known first, that it is silent or that Slurm's job is over without a word of it, is a matter of luck.
TEST_F(SlurmLoss, ATaskKilledTakesItsRankAlongAndThatRankIsToBlame) {
  const Training what;
  const auto job = muster().submit(training(what));
  under_way(job);
  const auto old = ranks_of(job, 1);
  const auto task = stage().pid_of_task(job, 1, 3);
  ASSERT_GT(task, 1);
  ASSERT_EQ(::kill(task, SIGKILL), 0);
  const auto ended = stage().until_ended(job, 1, 60s);
  const auto cause = text(attempt(ended, 1), "cause");
  EXPECT_THAT(cause, testing::AnyOf("rank_silent", "failed"));
  const auto after = expect_resumed(job, what, cause);
  EXPECT_EQ(attempt(after, 1).at("rank"), 3) << text(attempt(after, 1), "reason");
  expect_gone(old);
}

// Slurm itself never notices: the job would run for ever, and scancel would leave its tasks alone.
TEST_F(SlurmLoss, ASlurmstepdKilledIsANodeFailureAndItsRanksDieWithIt) {
  const Training what{.step_delay_ms = kNoSaveBetween};
  const auto job = muster().submit(training(what));
  const auto after = expect_node_failures(job, what, [&](const std::string& node, std::size_t number) {
    const auto old = ranks_of(job, static_cast<int>(number));
    ASSERT_FALSE(slurm().kill_stepd(node, stage().slurm_job(job, number)).empty());
    stage().until_ended(job, number, 60s);
    expect_gone(old);
  });
  for (const std::size_t number : {1, 2}) {
    EXPECT_THAT(text(attempt(after, number), "reason"), HasSubstr("slurmstepd"));
  }
  EXPECT_TRUE(test::eventually([&] { return stage().slurm_jobs(false).empty(); }, 60s)) << "the old jobs are cancelled";
}

// Last: a lost node is left out for ten minutes.
TEST_F(SlurmLoss, APowerCutIsKnownLongBeforeSlurmKnowsAndTheNodeIsLeftOut) {
  if (!slurm().has_namespaces()) GTEST_SKIP() << "nodes are no machines of their own without root";
  const Training what{.step_delay_ms = kNoSaveBetween};
  const auto job = muster().submit(training(what));
  std::vector<std::string> lost;
  const auto after = expect_node_failures(job, what, [&](const std::string& node, std::size_t number) {
    const auto victim = stage().slurm_job(job, number);
    slurm().power_cut(node);
    lost.push_back(node);
    stage().until_ended(job, number, kBeforeSlurmKnows);
    EXPECT_NE(slurm_cluster::field(slurm(), victim, "State"), "NODE_FAIL") << "Slurm does not know yet";
    const auto next = stage().until_running(job, number + 1);
    const auto excluded = excluded_nodes(stage().slurm_job(job, number + 1));
    for (const auto& one : lost) {
      EXPECT_THAT(excluded, testing::Contains(one));
      for (const auto& rank : next.at("ranks")) EXPECT_NE(rank.at("node"), one);
    }
  });
  for (const std::size_t number : {1, 2}) {
    EXPECT_THAT(text(attempt(after, number), "reason"), HasSubstr(lost.at(number - 1)));
  }
  for (const auto& listed : muster().json({"nodes"})) {
    const bool is_lost = std::ranges::find(lost, text(listed, "name")) != lost.end();
    EXPECT_EQ(listed.at("excluded_until").is_null(), !is_lost) << listed.dump();
    if (!is_lost) continue;
    EXPECT_EQ(std::to_string(listed.at("lost_by_job").get<int>()), job);
  }
  for (const auto& node : lost) slurm().power_on(node);
}

struct Exclusion;
class SlurmExclusion : public Story<Exclusion> {
 public:
  static void SetUpTestSuite() { set_up({.nodes = 2, .slurmd_timeout = kSlurmdTimeout}, {"--node-exclusion-s", "5"}); }

 protected:
  /// The nodes that an attempt leaves out, by what was written down before the attempt was handed to Slurm.
  static std::string left_out(const std::string& job, int attempt) {
    const auto folder = muster().data() / "jobs" / job / ("attempt-" + std::to_string(attempt));
    const auto json = Json::parse(test::read_file(folder / "slurm.json"), nullptr, false);
    return json.is_object() ? json.value("left_out", Json::array()).dump() : "";
  }
};

/// Nobody else is heard who could tell that the work stands, so only a long silence ends these attempts.
constexpr const char* kSoonLost = "[liveness]\nsilent_after_vouched = \"5s\"\nlost_after = \"5s\"\n";

// Muster hears only the task beside each rank of a program, whatever the program is.
TEST_F(SlurmExclusion, APowerCutUnderACommandIsKnownByItsTasksSilence) {
  if (!slurm().has_namespaces()) GTEST_SKIP() << "nodes are no machines of their own without root";
  const auto job = muster().submit(shell({.script = "[ $MUSTER_ATTEMPT -gt 1 ] || sleep 300", .more = kSoonLost}));
  // The use of a rank's processes is told by its task alone, so from here on the task is missed.
  muster().until(
      job, [](const Json& view) { return !view.at("ranks").empty() && !view.at("ranks")[0].at("use").is_null(); });
  const auto node = stage().node_of_rank(job, 0), slurm_job = stage().slurm_job(job, 1);
  slurm().power_cut(node);
  const auto ended = stage().until_ended(job, 1, kBeforeSlurmKnows);
  EXPECT_NE(slurm_cluster::field(slurm(), slurm_job, "State"), "NODE_FAIL") << "Slurm does not know yet";
  EXPECT_EQ(text(attempt(ended, 1), "cause"), "node_failed") << text(attempt(ended, 1), "reason");
  EXPECT_THAT(text(attempt(ended, 1), "reason"), HasSubstr(node));
  muster().until_state(job, "succeeded");
  EXPECT_EQ(left_out(job, 2), "[\"" + node + "\"]");
  slurm().power_on(node);
}

// The other node is taken for good, so the job can only have the one it lost; musterd itself is started again
// meanwhile.
TEST_F(SlurmExclusion, AJobThatWaitsMayHaveANodeAgainThatIsNoLongerLeftOut) {
  if (!slurm().has_namespaces()) GTEST_SKIP() << "nodes are no machines of their own without root";
  slurm_cluster::submit(slurm(), {"-w", "node2", "--exclusive"}, "sleep 600");
  const auto job = muster().submit(training({.steps = 40, .nodes = 1, .ranks_per_node = 1, .more = kSoonLost}));
  muster().until_step(job, 3);
  slurm().power_cut("node1");
  stage().until_ended(job, 1);
  ASSERT_TRUE(test::eventually([&] { return left_out(job, 2) == "[\"node1\"]"; }, 60s)) << left_out(job, 2);
  slurm().power_on("node1");
  muster().kill_daemon();
  muster().start_daemon();
  const auto after = muster().until_state(job, "succeeded");
  EXPECT_EQ(text(attempt(after, 1), "cause"), "node_failed") << text(attempt(after, 1), "reason");
  EXPECT_EQ(text(after.at("ranks")[0], "node"), "node1");
}

}  // namespace
}  // namespace story
