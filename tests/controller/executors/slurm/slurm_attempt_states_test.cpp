// Goal: what follows each observation in each state of an attempt on Slurm is decided once and reviewed.
// Method: every state x every kind of observation, written as one table.
#include <signal.h>

#include <array>
#include <functional>
#include <set>
#include <sstream>

#include "tests/controller/core/golden.h"
#include "tests/controller/executors/slurm/follow.h"

namespace executors::on_slurm {
namespace {

using namespace testing;

std::string_view name(const SlurmSide& side) {
  static constexpr std::array<std::string_view, std::variant_size_v<SlurmSide>> kNames = {
      "queued", "running", "suspended", "ending", "missing", "requeued", "cancelled", "ended"};
  return kNames[side.index()];
}

struct NamedState {
  std::string name;
  std::function<Following()> make;
};

Following under_way() {
  Following f;
  f.accounting = true;
  f.under_way();
  return f;
}

Following after(Following f, const std::function<void(Following&)>& what) {
  what(f);
  f.facts();
  return f;
}

std::vector<NamedState> states() {
  const auto queued = [] {
    Following f;
    f.accounting = true;
    f.slurm_says("PENDING", "Priority");
    return f;
  };
  const auto from = [](std::function<Following()> make, std::function<void(Following&)> what) {
    return [make, what] { return after(make(), what); };
  };
  const auto exit_held = [](Following& f) { f.task(1, exited(0, SIGTERM, {SIGTERM})); };
  return {
      {"queued", queued},
      {"queued, stopped", from(queued,
                               [](Following& f) {
                                 f.attempt.stop({30s, true}, f.now);
                               })},
      {"running", under_way},
      {"running, nobody heard", from(under_way, [](Following& f) { f.after(4s); })},
      {"running, rank 1 left with 99 after SIGTERM and is held", from(under_way, exit_held)},
      {"running, rank 1 failed and is held", from(under_way, [](Following& f) { f.task(1, exited(1)); })},
      {"running, preempted with grace", from(under_way,
                                             [](Following& f) {
                                               f.job.preempted = ::slurm::Time(1s);
                                               f.slurm_says("RUNNING");
                                             })},
      {"running, stopped", from(under_way,
                                [](Following& f) {
                                  f.attempt.stop({2s, true}, f.now);
                                })},
      {"running, Slurm's limit in 1 s", from(under_way,
                                             [](Following& f) {
                                               f.job.time_limit = 60s;
                                               f.job.ends = std::chrono::floor<std::chrono::seconds>(f.wall()) + 31s;
                                               f.slurm_says("RUNNING");
                                             })},
      {"running, all ranks done", from(under_way, [](Following& f) { f.task(0, exited(0)).task(1, exited(0)); })},
      {"running, adopted",
       [] {
         Following f({{7, 1}, 2, 1, true, false});
         f.accounting = true;
         return f;
       }},
      {"suspended", from(under_way, [](Following& f) { f.slurm_says("SUSPENDED"); })},
      {"running, just resumed",
       from(under_way, [](Following& f) { f.slurm_says("SUSPENDED").after(2s).slurm_says("RUNNING"); })},
      {"ending", from(under_way, [](Following& f) { f.slurm_says("COMPLETING"); })},
      {"ending, rank 1 is held", from(under_way, [=](Following& f) { exit_held(f.slurm_says("COMPLETING")); })},
      {"missing", from(under_way, [](Following& f) { f.after(4s).slurm_lists_nothing(); })},
      {"missing, a rank heard", from(under_way, [](Following& f) { f.slurm_lists_nothing(); })},
      {"missing for long", from(under_way,
                                [](Following& f) {
                                  f.after(4s);
                                  for (int i = 0; i < 2; ++i) f.slurm_lists_nothing();
                                  f.after(6s);
                                })},
      {"requeued, accounting asked", from(under_way,
                                          [](Following& f) {
                                            f.job.restarts = 1;
                                            f.slurm_says("PENDING", "BeginTime");
                                            f.job.restarts = 0;
                                          })},
      {"cancelled, accounting asked", from(under_way, [](Following& f) { f.slurm_says("CANCELLED"); })},
      {"ended: failed", from(under_way, [](Following& f) { f.slurm_says("FAILED"); })},
      {"ended: completed, no rank ever heard",
       from(queued, [](Following& f) { f.slurm_says("RUNNING").slurm_says("COMPLETED"); })},
      {"ended: node failed, rank 1 is out", from(under_way,
                                                 [=](Following& f) {
                                                   exit_held(f);
                                                   f.slurm_says("NODE_FAIL");
                                                 })},
      {"ended: requeued for exit code 99", from(under_way, [](Following& f) { f.slurm_waits_again(99); })},
      {"ended, told, Slurm has done with it",
       from(under_way, [](Following& f) { f.slurm_says("NODE_FAIL").after(3s); })},
  };
}

struct NamedObservation {
  std::string name;
  std::function<void(Following&)> happens;
};

std::vector<NamedObservation> observations() {
  const auto lists = [](std::string state, std::string reason = "None") {
    return NamedObservation{"listed " + state + (reason == "None" ? "" : " (" + reason + ")"), [=](Following& f) {
                              if (state == "SUSPENDED") f.job.node_list = "node[1-2]";
                              f.slurm_says(state, reason);
                            }};
  };
  const auto again = [](std::string state, std::string reason) {
    return NamedObservation{"listed " + state + " (" + reason + "), 1 restart", [=](Following& f) {
                              f.job.restarts = 1;
                              f.slurm_says(state, reason);
                            }};
  };
  const auto says = [](std::string what, TaskReport report) {
    return NamedObservation{"task of rank 0: " + what, [=](Following& f) { f.task(0, report); }};
  };
  const auto accounting = [](std::string state, ::slurm::ExitStatus exit = {}) {
    return NamedObservation{"accounting: " + state, [=](Following& f) { f.slurm_remembers(state, exit); }};
  };
  auto told = running("node1"), warned = running("node1"), stopped = running("node1");
  told.signals_seen = {SIGTERM};
  warned.signals_seen = {SIGUSR2};
  stopped.process = TaskReport::Process::kStopped;
  auto step_lost = exited(0, SIGKILL);
  step_lost.process = TaskReport::Process::kStepLost;
  return {
      lists("PENDING", "Priority"),
      lists("CONFIGURING"),
      lists("RUNNING"),
      {"listed RUNNING with PreemptTime",
       [](Following& f) {
         f.job.preempted = ::slurm::Time(1s);
         f.slurm_says("RUNNING");
       }},
      lists("SUSPENDED"),
      lists("COMPLETING"),
      lists("COMPLETING", "TimeLimit"),
      lists("COMPLETING", "NodeDown"),
      lists("COMPLETED"),
      {"listed FAILED with exit code 7",
       [](Following& f) {
         f.job.exit = ::slurm::ExitStatus{7, 0};
         f.slurm_says("FAILED");
       }},
      lists("CANCELLED"),
      lists("CANCELLED by 1000"),
      lists("TIMEOUT"),
      lists("PREEMPTED"),
      lists("NODE_FAIL"),
      lists("OUT_OF_MEMORY"),
      lists("A_STATE_OF_TOMORROW"),
      again("PENDING", "BeginTime"),
      {"listed PENDING again, exit code 99", [](Following& f) { f.slurm_waits_again(99); }},
      again("PENDING", "launch failed requeued held"),
      again("COMPLETING", "None"),
      again("RUNNING", "None"),
      {"listed PENDING again, node2 down",
       [](Following& f) {
         f.job.restarts = 1;
         f.down = {{"node2", "bad fan"}};
         f.slurm_says("PENDING", "BeginTime");
       }},
      {"not listed", [](Following& f) { f.slurm_lists_nothing(); }},
      says("runs", running("node1")),
      says("stopped", stopped),
      says("runs, got SIGTERM", told),
      says("runs, got SIGUSR2", warned),
      says("exit 0", exited(0)),
      says("exit 1", exited(1)),
      says("exit 99 after SIGTERM", exited(99, 0, {SIGTERM})),
      says("SIGKILL", exited(0, SIGKILL)),
      says("lost its slurmstepd", step_lost),
      {"status file of rank 0: exit 7",
       [](Following& f) {
         const auto seven = exited(7);
         f.attempt.file(0, &seven, f.now);
       }},
      accounting("PREEMPTED"),
      accounting("CANCELLED by ada"),
      accounting("NODE_FAIL"),
      accounting("REQUEUED", {99, 0}),
      {"there is no accounting", [](Following& f) { f.attempt.remembered(nullptr, f.now); }},
      {"the script's log: a second run", [](Following& f) { f.attempt.was_second_run(); }},
      {"stop, 2 s grace",
       [](Following& f) {
         f.attempt.stop({2s, true}, f.now);
       }},
      {"the controller was deaf", [](Following& f) { f.attempt.was_deaf(f.now); }},
      {"3 s pass", [](Following& f) { f.after(3s); }},
      {"11 min pass",
       [](Following& f) {
         f.now += 11min;
         f.attempt.tick(f.now);
       }},
  };
}

std::string state_text(const Following& f) {
  return std::string(name(f.attempt.side())) + (f.attempt.ended() ? ", told" : "") + (f.attempt.over() ? ", over" : "");
}

std::string wants_text(const Following& f) {
  std::string text;
  const auto add = [&](bool wants, const char* word) {
    text += wants ? std::string(text.empty() ? "" : " ") + word : "";
  };
  add(f.attempt.wants_listing(), "listing");
  add(f.attempt.wants_history(), "accounting");
  add(f.attempt.wants_files(f.now), "files");
  add(f.attempt.wants_script_word(), "log");
  add(f.attempt.wants_cancel(f.now), "cancel");
  return text;
}

std::string facts_text(Following& f) {
  std::string text;
  for (const auto& fact : f.attempt.take_facts()) {
    text += "    fact " + words(fact);
    if (const auto* e = std::get_if<core::AttemptStopping>(&fact)) text += ": " + e->reason;
    if (const auto* e = std::get_if<core::AttemptGone>(&fact)) text += ": " + e->reason;
    text += "\n";
  }
  return text;
}

TEST(SlurmAttemptStatesGolden, EveryStateTakesEveryObservationAsReviewed) {
  std::ostringstream table;
  table << "Every state of an attempt on Slurm x every kind of observation. The attempt has two ranks. \"told\": the "
           "core knows the end. fact: told to the core. wants: what the executor is to do next.\n";
  for (const auto& state : states()) {
    auto f = state.make();
    table << "\n" << state.name << "\n  is " << state_text(f);
    const auto wants = wants_text(f);
    table << (wants.empty() ? "" : "; wants " + wants) << "\n";
    for (const auto& observation : observations()) {
      auto after = state.make();
      const auto before_state = state_text(after), before_wants = wants_text(after);
      observation.happens(after);
      if (observation.name.starts_with("accounting") && !f.attempt.wants_history()) continue;
      after.attempt.tick(after.now);
      const auto facts = facts_text(after), to = state_text(after), next = wants_text(after);
      const bool same = facts.empty() && to == before_state && next == before_wants;
      table << "  " << observation.name << ": " << (same ? "nothing changes" : to);
      if (!same && !next.empty()) table << "; wants " << next;
      table << "\n" << facts;
    }
  }
  test::expect_golden("slurm_attempt_states.txt", table.str());
}

TEST(SlurmAttemptStatesGolden, TheTableHasEveryState) {
  std::set<std::string_view> names;
  for (const auto& state : states()) names.insert(name(state.make().attempt.side()));
  EXPECT_EQ(names.size(), std::variant_size_v<SlurmSide>);
}

}  // namespace
}  // namespace executors::on_slurm
