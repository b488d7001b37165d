#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/report/relay.h"
#include "agent/use/sampler.h"
#include "agent/watch/agent_files.h"
#include "spec/exit_codes.h"
#include "spec/report_keys.h"
#include "spec/variables.h"

namespace agent::beside {

/// How a rank's report file reaches the controller, by the rank's environment and process. Null: it does not.
using ConnectRank = std::function<report::Connect(const spec::Environment& rank, pid_t pid)>;

/// The longest that a file system that does not answer delays a start, a stop, and the news of an end.
inline constexpr std::chrono::milliseconds kFilePatience{500};
/// The longest wait for the last words of a rank. Without them an error that comes twice is not known for the same.
inline constexpr std::chrono::milliseconds kWordsPatience{2'000};

/// A rank may have been asked to leave by the agent before it ended.
enum class Asked { kNo, kToLeave, kBecauseAPeerFailed };

struct SidecarSetup {
  std::uint32_t rank = 0;
  watch::RankFiles files;
  std::string working_folder;
  bool is_command = true;         // any program, which may report by files; muster-worker speaks for itself
  spec::ReportSources report;     // other sources that the job names
  spec::Environment environment;  // the rank's
  /// The environment that the agent's reporter reads. A program with a launcher of its own is no rank, and has no RANK.
  spec::Environment reporters;
  ConnectRank connect;
};

/// The work of an agent for one rank besides starting and ending it. The calls come in this order, from one thread.
class Sidecar {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Sidecar(SidecarSetup setup) : setup_(std::move(setup)) {}

  /// The rank as a sampler of use looks at it.
  use::Rank seen_as(pid_t pid) const;

  /// Reports that are there before the program starts are no work of it. Waits for disks until then at most.
  void look_before_start(Clock::time_point until);
  /// Follows what the program reports from here on. Where no thread can be started, the rank runs on without.
  void follow(pid_t pid);
  /// The program has ended: what its files still hold is told.
  void ended(const spec::ExitStatus& exit);
  /// The program's own words about its end; empty: there are none. A rank that was asked to leave is not asked why it
  /// left, unless it was asked because another rank has failed: its own failure may have been the first. nullopt: the
  /// file system has not answered within kWordsPatience.
  std::optional<std::string> last_words(const spec::ExitStatus& exit, Asked asked) const;

  // Calls of report::Relay. Where nothing is followed, all is done.
  bool wait(Clock::time_point until) { return !relay_ || relay_->wait(until); }
  bool wait_before_end(Clock::time_point until) { return !relay_ || relay_->wait_before_end(until); }
  std::string finish(Clock::time_point until) { return relay_ ? relay_->finish(until) : std::string(); }
  bool follows() const { return relay_ != nullptr; }

  /// Writes a notice that `how` is why these ranks are to leave, which each program finds in the file that MUSTER_STOP
  /// names when the signal arrives. Returns the ranks whose programs look for that file by themselves, and need no
  /// signal.
  static std::set<std::uint32_t> tell_stop(const std::vector<const Sidecar*>& ranks, const watch::StopNotice& how);

 private:
  const SidecarSetup setup_;
  report::Sources sources_;  // until the program runs
  std::unique_ptr<report::Relay> relay_;
};

}  // namespace agent::beside
