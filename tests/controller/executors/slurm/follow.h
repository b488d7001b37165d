#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "controller/executors/slurm/slurm_attempt.h"

namespace executors::on_slurm::testing {

using namespace std::chrono_literals;

inline TaskReport running(const std::string& node = "") {
  TaskReport report;
  report.process = TaskReport::Process::kRunning;
  report.node = node;
  report.pid = 100;
  return report;
}

inline TaskReport exited(int code, int signal = 0, std::vector<int> seen = {}) {
  auto report = running();
  report.process = TaskReport::Process::kExited;
  report.exit = {code, signal};
  report.signals_seen = std::move(seen);
  return report;
}

/// A fact in a few words: "started node1 node2", "stopping preempted save", "rank 1 exit 99", "gone cancelled".
inline std::string words(const core::EventBody& fact) {
  if (const auto* e = std::get_if<core::AttemptStarted>(&fact)) {
    std::string text = e->seen_there ? "seen on" : "started";
    for (const auto& node : e->nodes) text += " " + node;
    return text;
  }
  if (const auto* e = std::get_if<core::AttemptStopping>(&fact)) {
    return "stopping " + std::string(core::to_string(e->cause)) + (e->save ? " save" : "");
  }
  if (const auto* e = std::get_if<core::RankExited>(&fact)) {
    return "rank " + std::to_string(e->rank) +
           (e->exit.signal != 0 ? " signal " + std::to_string(e->exit.signal)
                                : " exit " + std::to_string(e->exit.code));
  }
  if (const auto* e = std::get_if<core::AttemptGone>(&fact)) {
    return "gone " + std::string(core::to_string(e->cause));
  }
  if (const auto* e = std::get_if<core::NodeLost>(&fact)) return "lost " + e->node + ": " + e->why;
  return "something else";
}

/// An attempt, its time, and Slurm's word on its job.
class Following {
 public:
  explicit Following(Followed what = {{7, 1}, 2, 1, false, false}) : attempt(what, now) {
    job.id = {12, {}};
    job.comment = "muster:s:7.1";
  }

  std::vector<std::string> facts() {
    std::vector<std::string> told;
    for (const auto& fact : attempt.take_facts()) told.push_back(words(fact));
    return told;
  }
  /// The reasons of the stops and ends among the facts, without anything else.
  std::vector<std::string> reasons() {
    std::vector<std::string> told;
    for (const auto& fact : attempt.take_facts()) {
      if (const auto* e = std::get_if<core::AttemptStopping>(&fact)) told.push_back(e->reason);
      if (const auto* e = std::get_if<core::AttemptGone>(&fact)) told.push_back(e->reason);
    }
    return told;
  }
  /// Time passes, in the steps of an executor.
  Following& after(core::Millis time) {
    for (const auto end = now + time; now < end;) {
      now += std::min(core::Millis(50), end - now);
      if (reads_files && attempt.wants_files(now)) attempt.files_read(now);
      attempt.tick(now);
    }
    return *this;
  }
  /// A listing asked for and answered now.
  Following& slurm_says(const std::string& state, const std::string& reason = "None",
                        std::optional<core::Time> by_its_clock = std::nullopt) {
    now += 1ms;
    job.state = ::slurm::parse_job_state(state);
    job.reason = reason;
    if (state == "RUNNING" && job.node_list.empty()) job.node_list = "node[1-2]";
    attempt.observe({&job, down, now, now, by_its_clock.value_or(wall())});
    if (!accounting) attempt.remembered(nullptr, now);
    attempt.tick(now);
    return *this;
  }
  /// Its run left with a code that the cluster requeues jobs for.
  Following& slurm_waits_again(int code) {
    job.restarts = 1;
    job.exit = ::slurm::ExitStatus{code, 0};
    slurm_says("PENDING", "NonZeroExitCode");
    job.exit.reset();
    return *this;
  }
  Following& slurm_lists_nothing() {
    attempt.observe({nullptr, down, now, now, wall()});
    if (!accounting) attempt.remembered(nullptr, now);
    attempt.tick(now);
    return *this;
  }
  /// Accounting's answer to what the listing before made the attempt ask.
  Following& slurm_remembers(const std::string& state, ::slurm::ExitStatus exit = {}) {
    ::slurm::PastRun run;
    run.id = job.id;
    run.state = ::slurm::parse_job_state(state);
    run.exit = exit;
    run.node_list = "node[1-2]";
    attempt.remembered(&run, now);
    attempt.tick(now);
    return *this;
  }
  Following& task(core::RankNumber rank, const TaskReport& report) {
    now += 1ms;
    attempt.task(rank, report, now);
    attempt.tick(now);
    return *this;
  }
  /// Both ranks run, and that has been told.
  Following& under_way() {
    slurm_says("RUNNING").task(0, running("node1")).task(1, running("node2"));
    facts();
    return *this;
  }

  /// The clock that Slurm's times are of.
  core::Time wall() const { return core::Time(1'795'000'000s) + now; }

  core::Millis now{1'000'000};
  SlurmAttempt attempt;
  ::slurm::ListedJob job;
  DownNodes down;
  bool accounting = false;
  bool reads_files = true;  // in time; there are none but those that a test hands over
};

}  // namespace executors::on_slurm::testing
