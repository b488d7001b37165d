#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/slurm_cluster/cluster.h"
#include "tests/slurm_cluster/world.h"
#include "tests/system/world.h"

namespace story {

using namespace std::chrono_literals;
using test::Json;
using test::last;

/// A small Llama on the built-in text, on 2 nodes with 2 ranks each.
struct Training {
  int steps = 60;
  int every_steps = 20;  // 0: nothing is saved but at the end and when asked
  int step_delay_ms = 100;
  int nodes = 2;
  int ranks_per_node = 2;
  std::string partition = "main";
  std::string resources = {};  // further keys of [resources]
  std::string requeue = {};    // further keys of [requeue]
  std::string more = {};       // further tables
};
std::string training(const Training& job);

/// A command job of so many ranks that runs a shell script.
struct Shell {
  std::string script;
  int nodes = 1;
  int ranks_per_node = 1;
  std::string resources = {};
  std::string requeue = {};
  std::string more = {};
};
std::string shell(const Shell& job);

/// Who uses Slurm and muster in these stories (MUSTER_TEST_USER), on a cluster that is root's; empty: whoever runs
/// them.
std::string acting_user();

/// A real Slurm, and a musterd that hands its jobs to it.
class Stage {
 public:
  explicit Stage(slurm_cluster::Options options = {}, std::vector<std::string> daemon_flags = {},
                 const std::map<std::string, std::string>& daemon_environment = {},
                 const std::string& data_name = "data");

  slurm_cluster::Cluster& slurm() { return slurm_; }
  test::World& muster() { return *muster_; }

  /// Slurm's number of an attempt, from 1; empty before it is handed over.
  std::string slurm_job(const std::string& job, std::size_t attempt);
  /// Waits until attempt `number` (from 1) is over; the job then.
  Json until_ended(const std::string& job, std::size_t number, std::chrono::milliseconds limit = 60s);
  /// Waits until attempt `number` runs, or has run.
  Json until_running(const std::string& job, std::size_t number, std::chrono::milliseconds limit = 60s);
  /// Waits until every rank of attempt `number` has gone a step beyond where it began.
  Json until_trains(const std::string& job, std::size_t number, std::chrono::milliseconds limit = 60s);
  /// Waits until muster knows the node of a rank of the newest attempt, which a listing of Slurm's queue tells.
  std::string node_of_rank(const std::string& job, std::size_t rank);
  /// Waits until attempt 1 is in Slurm's queue, or was; Slurm's number of it.
  std::string until_handed_over(const std::string& job);
  /// Steps that an attempt told the controller it has saved.
  std::vector<int> saved_steps(const std::string& job, int attempt);
  /// The events of a job, one a line.
  std::string events(const std::string& job);
  /// Pid, as this process sees it, of a rank's own process, or of the muster-agent beside it; 0: there is none.
  pid_t pid_of_rank(const std::string& job, int attempt, int rank);
  pid_t pid_of_task(const std::string& job, int attempt, int rank);
  /// Those of the slurmds of these nodes, which hear nothing while they are stopped.
  std::vector<pid_t> pids_of_slurmds(const std::set<std::string>& nodes);
  /// Every name and comment that Slurm knows, ended jobs too, one a line: "<id> <state> <comment>".
  std::vector<std::string> slurm_jobs(bool all = true);
  /// The attempt's comment in Slurm, however it got there, counted over all jobs that Slurm knows.
  int submissions_of(const std::string& job, int attempt);
  std::string comment_of(const std::string& job, int attempt);

  /// The last checkpoint equals, to the bit, that of an uninterrupted run of a job of the same `steps` and shape.
  void expect_model_of_calm_run(const std::string& job, const Training& training);
  /// Everything somebody needs to find out what went wrong.
  std::string diagnosis();
  /// Cancels what has not ended, here and in Slurm, and waits until its nodes are free.
  void clear();

 private:
  slurm_cluster::Cluster slurm_;
  std::unique_ptr<test::World> muster_;
  std::map<std::string, std::string> calm_;  // by what was trained
  int told_ = 0;                             // the newest job of earlier tests
};

/// The jobs of the sweep that `muster submit` has just named.
Json jobs_of(test::World& muster, const test::Finished& submitted);

/// The newest complete checkpoint of a folder; empty if there is none.
std::filesystem::path newest_checkpoint(const std::filesystem::path& folder);

/// An attempt's view, from 1.
inline const Json& attempt(const Json& job, std::size_t number) {
  return job.at("attempts").at(number - 1);
}
inline std::string text(const Json& object, const char* key) {
  return object.at(key).get<std::string>();
}

/// One stage for all tests of a suite. A failed test tells the whole story.
template <typename Tag>
class Story : public testing::Test {
 public:
  static void TearDownTestSuite() { stage_.reset(); }

 protected:
  static void set_up(slurm_cluster::Options options, std::vector<std::string> daemon_flags = {},
                     const std::map<std::string, std::string>& daemon_environment = {},
                     const std::string& data_name = "data") {
    if (!acting_user().empty()) cannot_play_ = test::World::cannot_run_as(acting_user());
    if (options.separate_network && getuid() != 0) cannot_play_ = "a network of each node's own takes root";
    if (options.memory_limits && cannot_play_.empty()) cannot_play_ = slurm_cluster::no_memory_limits();
    if (!cannot_play_.empty()) return;
    stage_ = std::make_unique<Stage>(std::move(options), std::move(daemon_flags), daemon_environment, data_name);
  }
  void SetUp() override {
    if (!cannot_play_.empty()) GTEST_SKIP() << cannot_play_;
  }
  static Stage& stage() { return *stage_; }
  static test::World& muster() { return stage_->muster(); }
  static slurm_cluster::Cluster& slurm() { return stage_->slurm(); }
  void TearDown() override {
    if (!stage_) return;
    if (HasFailure()) std::cerr << stage_->diagnosis();
    stage_->clear();
  }

 private:
  static inline std::unique_ptr<Stage> stage_;
  static inline std::string cannot_play_;
};

}  // namespace story
