// Goal: whatever dies around a submission, no attempt becomes two Slurm jobs and none is lost; a stranger's job is
// neither adopted nor cancelled.
// Method: real Slurm; an sbatch of ours, first in musterd's PATH, kills musterd before, during or after the real one,
// keeps its answer to itself, or fails after it; slurmctld is killed right after it took a job, or has no room for it.
// Each job appends a line to its own file.
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "tests/slurm_system/story.h"

namespace story {
namespace {

using testing::HasSubstr;

/// A folder with an sbatch that does what the file `mode` beside it says, once.
class FakeSbatch {
 public:
  FakeSbatch() {
    test::write_file(folder_.path() / "sbatch", R"(#!/bin/bash
here=$(dirname "$0")
case " $* " in *" --test-only "*) exec /usr/bin/sbatch "$@" ;; esac
echo called >> "$here/calls"
mode=$(cat "$here/mode" 2> /dev/null)
rm -f "$here/mode"
case "$mode" in
  die-before) kill -KILL $PPID; exit 1 ;;
  die-then-submit)
    cat > "$here/script"; kill -KILL $PPID
    while [ -d "$here" ] && [ ! -e "$here/go" ]; do sleep 0.1; done
    exec /usr/bin/sbatch "$@" < "$here/script" ;;
  die-after) answer=$(/usr/bin/sbatch "$@"); kill -KILL $PPID; echo "$answer" ;;
  no-answer) /usr/bin/sbatch "$@" > /dev/null; echo "sbatch: error: Socket timed out on send/recv operation" >&2; exit 1 ;;
  fails) /usr/bin/sbatch "$@" > /dev/null; exit 1 ;;
  fails-with-words) /usr/bin/sbatch "$@" > /dev/null; echo "Site epilogue: invalid account" >&2; exit 1 ;;
  waits-and-fails)
    echo "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying" >&2
    /usr/bin/sbatch "$@" > /dev/null; exit 1 ;;
  fails-and-dies) /usr/bin/sbatch "$@" > /dev/null; kill -KILL $PPID; exit 1 ;;
  hangs-and-dies)
    /usr/bin/sbatch "$@" > /dev/null; kill -KILL $PPID
    while [ -d "$here" ] && [ ! -e "$here/go-home" ]; do sleep 0.1; done ;;
  ctld-dies) /usr/bin/sbatch "$@"; code=$?; kill -KILL $(cat "$here/ctld"); exit $code ;;
  *) exec /usr/bin/sbatch "$@" ;;
esac
)");
    ::chmod((folder_.path() / "sbatch").c_str(), 0755);
  }
  std::string path() const { return folder_.path().string() + ":" + std::getenv("PATH"); }
  void set(const std::string& mode) const { test::write_file(folder_.path() / "mode", mode); }
  void write(const std::string& name, const std::string& text) const { test::write_file(folder_.path() / name, text); }

 private:
  test::TemporaryFolder folder_;
};

pid_t pid_of_slurmctld(const slurm_cluster::Cluster& cluster) {
  const auto found = slurm_cluster::processes_of(cluster.folder(), "slurmctld");
  if (found.empty()) throw std::runtime_error("no slurmctld runs");
  return found.front();
}

struct Crash;
class SlurmCrash : public Story<Crash> {
 public:
  static void SetUpTestSuite() {
    sbatch_ = std::make_unique<FakeSbatch>();
    set_up({.nodes = 2}, {}, {{"PATH", sbatch_->path()}});
  }
  static void TearDownTestSuite() {
    Story::TearDownTestSuite();
    sbatch_.reset();
  }

 protected:
  static std::filesystem::path witness(const std::string& name) { return muster().folder() / ("ran-" + name); }
  static std::string witnessed(const std::string& name) {
    // Nothing but the controller's doing starts it again.
    return shell(
        {.script = "echo once >> " + witness(name).string(), .requeue = "max_failed = 0\nmax_controller_lost = 0\n"});
  }
  static void expect_ran_once(const std::string& job, const std::string& name) {
    const auto after = muster().until(
        job, [](const Json& view) { return view.at("state") == "succeeded" || view.at("state") == "failed"; }, 90s);
    EXPECT_EQ(after.at("state"), "succeeded") << after.dump(1);
    EXPECT_EQ(test::read_file(witness(name)), "once\n");
    EXPECT_EQ(stage().submissions_of(job, 1), 1);
  }
  /// A job on all nodes. Of one that has run its ranks' files tell, of one that waits nothing but its comment.
  static std::string block() {
    const auto blocker = slurm_cluster::submit(slurm(), {"-N2", "--exclusive"}, "sleep 600");
    EXPECT_TRUE(slurm_cluster::becomes(slurm(), blocker, "State", "RUNNING"));
    return blocker;
  }
  /// Slurm's numbers of the jobs and arrays whose comment ends so.
  static std::set<std::string> submitted_as(const std::string& suffix) {
    std::set<std::string> ids;
    for (const auto& line : stage().slurm_jobs()) {
      if (line.ends_with(suffix)) ids.insert(line.substr(0, line.find_first_of("_ ")));
    }
    return ids;
  }
  /// Four jobs that each append a line to a file of their own, handed over by an sbatch of this mode.
  static std::string submit_sweep(const std::string& mode, const std::string& name) {
    sbatch_->set(mode);
    const auto file = muster().folder() / (name + ".toml");
    test::write_file(file, shell({.script = "echo once >> " + witness(name).string() + "-$STEP",
                                  .requeue = "max_failed = 0\nmax_controller_lost = 0\n",
                                  .more = "[env]\nSTEP = \"0\"\n"}));
    const auto done = muster().cli({"submit", file.string(), "--sweep", "env.STEP=0..3", "--json"});
    EXPECT_EQ(done.exit, 0) << done.err;
    return text(Json::parse(done.out), "sweep");
  }
  static std::vector<int> jobs_of(const std::string& sweep) {
    std::vector<int> jobs;
    for (const auto& job : muster().json({"list", "--sweep", sweep})) jobs.push_back(job.at("id").get<int>());
    std::ranges::sort(jobs);
    EXPECT_EQ(jobs.size(), 4U);
    return jobs;
  }
  static void expect_array_waits_once(const std::string& sweep) {
    const auto first = std::to_string(jobs_of(sweep).front());
    const auto element = stage().until_handed_over(first);
    EXPECT_EQ(submitted_as(":set." + first + ".1"), std::set{element.substr(0, element.find('_'))});
  }
  static void expect_each_ran_once(const std::string& sweep, const std::string& name) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(test::eventually(
        [&] {
          const auto jobs = muster().json({"list", "--sweep", sweep});
          return std::ranges::all_of(jobs, [](const Json& job) { return job.at("state") == "succeeded"; });
        },
        60s));
    for (int step = 0; step < 4; ++step) {
      EXPECT_EQ(test::read_file(witness(name).string() + "-" + std::to_string(step)), "once\n") << step;
    }
  }
  static void expect_waits_once(const std::string& job) {
    const auto id = stage().until_handed_over(job);
    EXPECT_EQ(submitted_as(":" + job + ".1"), std::set{id});
  }
  static inline std::unique_ptr<FakeSbatch> sbatch_;
};

TEST_F(SlurmCrash, ADeathAroundSbatchNeitherLosesNorDoublesAJob) {
  const auto blocker = block();
  std::map<std::string, std::string> jobs;
  for (const std::string mode : {"die-before", "die-then-submit", "die-after"}) {
    SCOPED_TRACE(mode);
    sbatch_->set(mode);
    const auto job = muster().submit(witnessed(mode));
    ASSERT_TRUE(muster().daemon().wait(20s)) << "musterd was to be killed by then";
    muster().start_daemon();
    if (mode == "die-then-submit") {
      const auto why = [&] { return text(muster().json({"why", job}), "reason"); };
      EXPECT_TRUE(test::eventually([&] { return why().find("is still under way") != std::string::npos; }, 60s))
          << why();
      sbatch_->write("go", "");
    }
    expect_waits_once(job);
    jobs[job] = mode;
  }
  slurm().run({"scancel", blocker});
  for (const auto& [job, mode] : jobs) expect_ran_once(job, mode);
}

// A site's wrapper around sbatch may do so: its own doing fails after the real one has succeeded.
TEST_F(SlurmCrash, AnSbatchThatFailsOrHangsAfterItsWorkNeitherLosesNorDoublesAJob) {
  const auto blocker = block();
  std::map<std::string, std::string> jobs;
  for (const std::string mode : {"fails", "fails-with-words", "waits-and-fails", "fails-and-dies", "hangs-and-dies"}) {
    SCOPED_TRACE(mode);
    sbatch_->set(mode);
    const auto job = muster().submit(witnessed(mode));
    if (mode.ends_with("dies")) {
      ASSERT_TRUE(muster().daemon().wait(20s)) << "musterd was to be killed by then";
      muster().start_daemon();
    }
    expect_waits_once(job);
    jobs[job] = mode;
  }
  std::map<std::string, std::string> sweeps;
  for (const std::string mode : {"fails-with-words", "fails-and-dies"}) {
    SCOPED_TRACE("an array, " + mode);
    const auto sweep = submit_sweep(mode, "array-" + mode);
    if (mode.ends_with("dies")) {
      ASSERT_TRUE(muster().daemon().wait(20s)) << "musterd was to be killed by then";
      muster().start_daemon();
    }
    expect_array_waits_once(sweep);
    sweeps[sweep] = "array-" + mode;
  }
  slurm().run({"scancel", blocker});
  for (const auto& [job, mode] : jobs) expect_ran_once(job, mode);
  for (const auto& [sweep, name] : sweeps) expect_each_ran_once(sweep, name);
  sbatch_->write("go-home", "");
}

// Its folder is a small file system of its own, in the daemons' view alone.
TEST_F(SlurmCrash, AJobThatSlurmctldHasNoRoomForWaitsAndSucceedsWhenThereIs) {
  const auto state = slurm().folder() / "state", copy = slurm().folder() / "state-copy";
  const auto among_daemons = [&](std::vector<std::string> command) {
    command.insert(command.begin(), {"nsenter", "-t", std::to_string(slurm().guard()), "-m", "--"});
    return slurm().run(command);
  };
  slurm().stop_ctld();
  ASSERT_EQ(slurm().run({"cp", "-a", state, copy}).exit, 0);
  const auto mounted = among_daemons({"mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", state});
  if (mounted.exit == 0) {
    ASSERT_EQ(among_daemons({"cp", "-a", copy.string() + "/.", state}).exit, 0);
  }
  slurm().start_ctld();
  if (mounted.exit != 0) GTEST_SKIP() << "no file system can be mounted here: " << mounted.err;
  among_daemons({"dd", "if=/dev/zero", "of=" + (state / "fill").string(), "bs=4k"});
  const auto first = muster().submit(witnessed("no-room"));
  const auto sweep = submit_sweep("", "no-room-either");
  for (const auto& job : {first, std::to_string(jobs_of(sweep).front())}) {
    const auto why = [&] { return text(muster().json({"why", job}), "reason"); };
    EXPECT_TRUE(test::eventually([&] { return why().find("I/O error writing script") != std::string::npos; }, 60s))
        << why();
  }
  EXPECT_EQ(muster().show(first).at("state"), "pending");
  among_daemons({"rm", state / "fill"});
  expect_ran_once(first, "no-room");
  expect_each_ran_once(sweep, "no-room-either");
  slurm().stop_ctld();
  EXPECT_EQ(among_daemons({"rm", "-rf", copy}).exit, 0);
  EXPECT_EQ(among_daemons({"cp", "-a", state, copy}).exit, 0);
  EXPECT_EQ(among_daemons({"umount", state}).exit, 0);
  EXPECT_EQ(among_daemons({"cp", "-a", copy.string() + "/.", state}).exit, 0);
  slurm().start_ctld();
}

TEST_F(SlurmCrash, AnAnswerThatGotLostIsLookedFor) {
  const auto blocker = block();
  sbatch_->set("no-answer");
  const auto job = muster().submit(witnessed("no-answer"));
  expect_waits_once(job);
  slurm().run({"scancel", blocker});
  expect_ran_once(job, "no-answer");
}

TEST_F(SlurmCrash, ADeathAtAnyMomentNeitherLosesNorDoublesAJob) {
  constexpr int kRounds = 10;
  std::map<std::string, std::string> jobs;
  for (int round = 0; round < kRounds; ++round) {
    const auto name = "round-" + std::to_string(round);
    jobs[muster().submit(witnessed(name))] = name;
    std::this_thread::sleep_for(std::chrono::milliseconds(12 * round));  // the sweep
    muster().kill_daemon();
    muster().start_daemon();
  }
  for (const auto& [job, name] : jobs) expect_ran_once(job, name);
}

TEST_F(SlurmCrash, AnArrayIsSubmittedOnceToo) {
  const auto blocker = block();
  std::map<std::string, std::string> sweeps;
  for (const std::string mode : {"die-before", "die-after"}) {
    SCOPED_TRACE(mode);
    const auto sweep = submit_sweep(mode, mode);
    ASSERT_TRUE(muster().daemon().wait(20s)) << "musterd was to be killed by then";
    muster().start_daemon();
    expect_array_waits_once(sweep);
    sweeps[sweep] = mode;
  }
  slurm().run({"scancel", blocker});
  for (const auto& [sweep, mode] : sweeps) expect_each_ran_once(sweep, mode);
}

// slurmctld dies before it has written the job down: it comes back without it, and the next sbatch gets its number.
TEST_F(SlurmCrash, AJobThatSlurmctldForgotIsNoticedAndAStrangerWithItsNumberLeftAlone) {
  block();
  const auto state = slurm().folder() / "state";
  const auto before = muster().folder() / "state-before";
  // An orderly end writes down everything up to here.
  slurm().stop_ctld();
  std::filesystem::copy(state, before, std::filesystem::copy_options::recursive);
  slurm().start_ctld();
  const pid_t ctld = pid_of_slurmctld(slurm());
  sbatch_->write("ctld", std::to_string(ctld));
  sbatch_->set("ctld-dies");
  const auto job = muster().submit(shell({.script = "true"}));
  const auto id = text(attempt(muster().until_state(job, "queued"), 1), "scheduler_job");
  ASSERT_TRUE(test::eventually([&] { return ::kill(ctld, 0) != 0; }, 60s));
  std::filesystem::remove_all(state);
  std::filesystem::rename(before, state);
  slurm().start_ctld();
  const auto stranger =
      slurm_cluster::submit(slurm(), {"-N2", "--exclusive", "--comment", "a stranger's"}, "sleep 600");
  ASSERT_EQ(stranger, id) << "slurmctld was to forget the job";
  const auto after = stage().until_ended(job, 1, 120s);
  EXPECT_EQ(text(attempt(after, 1), "cause"), "controller_lost");
  EXPECT_EQ(slurm_cluster::field(slurm(), stranger, "State"), "PENDING") << "not cancelled";
  slurm().run({"scancel", "--state=RUNNING", "--partition=main"});
  ASSERT_TRUE(slurm_cluster::becomes(slurm(), stranger, "State", "RUNNING"));
  slurm().run({"scancel", stranger});
  EXPECT_EQ(muster().until_state(job, "succeeded").at("attempts").size(), 2U);
}

}  // namespace
}  // namespace story
