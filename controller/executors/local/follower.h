#pragma once

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/protocol/facts.h"
#include "base/fd.h"
#include "base/process_table.h"
#include "controller/common/loop.h"
#include "controller/core/event.h"
#include "controller/executors/executor.h"

namespace executors::local {

/// The processes left of an attempt whose agent is gone: its ranks, whatever shares their session, whatever was
/// started with `attempt_folder` in MUSTER_ATTEMPT_FOLDER or has overwritten its environment and writes into a rank's
/// log there, and the children of all these. Dead processes are not counted. Empty after a reboot.
///
/// torchrun's workers, and daemons, have sessions of their own, and init is their parent once the rank has died. Their
/// environment still tells whose they are. An empty `attempt_folder` is no mark.
std::vector<base::ProcessStat> leftovers(const agent::protocol::Started& started,
                                         const std::string& attempt_folder = {});

/// True if any rank itself (not what it started) still runs.
bool any_alive(const agent::protocol::Started& started);

/// The attempt's agent, if it is still there: the leader of the ranks' session, older than every rank.
std::optional<base::ProcessStat> agent_of(const agent::protocol::Started& started);

/// Follows one attempt to its end: tells RankExited for each rank not in `told`, once, and AttemptGone if the attempt
/// is over without that being known of every rank.
///
///   looking at the agent's lock and status file, from time to time and when the agent tells of an end or ends
///       |  its lock is free; an agent that is there but does nothing (stopped, or stuck in the kernel) is killed when
///       |  ranks outlive a stop, or when all of them are gone and it does not tell so
///       v
///   burying: kills what is left of the ranks until nothing is --> over
///
/// The agent's own words come through exited(). They come sooner than the file, but may not come at all: the file and
/// the lock are what counts. Whether an agent does something is seen from how often the kernel has let it run, since
/// its words may be on their way, or held back with reason.
///
/// All calls, and all that it calls, in the io_context's one thread. Trouble in looking is retried for ever, with
/// pauses that grow up to kLongestPause.
class Follower : public std::enable_shared_from_this<Follower> {
 public:
  static constexpr std::chrono::milliseconds kShortestPause{10};
  static constexpr std::chrono::milliseconds kLongestPause{2000};
  static constexpr std::chrono::milliseconds kLookEvery{5000};
  /// Rounds in a row before an agent counts as stuck. After a stop's grace with a living rank: of one that does
  /// nothing, and of one that does something, which may have heard of the stop late. Without a living rank: of one that
  /// does nothing.
  static constexpr int kRoundsAfterGrace = 2;
  static constexpr int kRoundsUnheard = 6;
  static constexpr int kRoundsWithoutRanks = 6;
  /// Until musterd's log tells of a process that SIGKILL does not end, and until it tells so again.
  static constexpr std::chrono::seconds kTellLeftAfter{5}, kTellLeftAgain{600};

  struct Listener {
    std::function<void(core::EventBody)> tell;
    std::function<void()> over;  // the last call
  };

  /// `disk` asks the disk, which may take its time, and must not outlive `io`.
  Follower(boost::asio::io_context& io, common::Errands& disk, const core::AttemptKey& key,
           std::filesystem::path folder, std::set<core::RankNumber> told, Listener listener);

  /// `look_every`: how often it is looked whether the agent still does its work, and at its file.
  void begin(std::chrono::milliseconds look_every = kLookEvery);
  /// Hands over what launch() has read in the folder, which may not be there any more.
  void know(const agent::protocol::Started& started, const std::optional<std::string>& mark);
  /// The agent has told of a rank's end.
  void exited(const agent::protocol::Exited& exited);
  /// The agent was told to stop its ranks, and is to have killed them after the grace.
  void stop(core::Millis grace) {
    const auto at = Clock::now() + grace;
    kill_at_ = kill_at_ ? std::min(*kill_at_, at) : at;
  }
  /// The agent could not hear of a stop until now: what it did not do counts from here on.
  void was_deaf() { rounds_after_grace_ = rounds_without_ranks_ = 0; }
  /// Calls nothing any more.
  void close();

 private:
  using Clock = std::chrono::steady_clock;
  /// The answer of an attempt's folder.
  struct Seen {
    bool is_missing = false;  // there is no such folder
    bool answers = false;     // else it is asked again
    bool is_held = true;      // by the agent, or by whoever starts it
    agent::protocol::Status status;
    std::string damage;               // why the status file makes no sense; empty: it does
    std::optional<std::string> mark;  // MUSTER_ATTEMPT_FOLDER of its ranks; nullopt: it could not be read
  };

  static Seen look_into(const std::filesystem::path& folder, bool wants_mark);
  void look();
  void seen(const Seen& what);
  void learn(const Seen& what);
  std::string why_not_started(const Seen& what) const;
  void wait_for_agent();
  void watch_agent();
  void bury();
  std::vector<base::ProcessStat> left_behind();
  void tell_of_left(const base::ProcessStat& process);
  void look_in_rounds();
  bool is_stuck();
  bool agent_has_run();
  void kill_all();
  bool all_are_told() const { return status_.started && told_.size() >= status_.started->ranks.size(); }
  void gone(const std::string& reason) {
    listener_.tell(core::AttemptGone{key_.number, core::Cause::kControllerLost, reason});
    finish();
  }
  void finish() {
    close();
    listener_.over();
  }
  void later(void (Follower::*what)());
  std::string why_gone() const;

  boost::asio::io_context& io_;
  common::Errands& disk_;
  const core::AttemptKey key_;
  const std::filesystem::path path_;
  std::set<core::RankNumber> told_;
  Listener listener_;
  boost::asio::posix::stream_descriptor agent_;  // readable once the agent has ended; closed: it is not watched
  boost::asio::steady_timer timer_;
  boost::asio::steady_timer rounds_;
  std::chrono::milliseconds look_every_ = kLookEvery;
  int rounds_after_grace_ = 0;
  int rounds_without_ranks_ = 0;
  std::uint64_t agent_ran_ = 0;  // how often the kernel had let it run, a round ago
  bool is_looking_ = false, was_stuck_ = false, is_burying_ = false;
  agent::protocol::Status status_;
  std::optional<Clock::time_point> tell_left_at_;  // that a process does not end
  std::optional<std::string> mark_;                // as in Seen
  std::chrono::milliseconds pause_ = kShortestPause;
  std::optional<Clock::time_point> kill_at_;  // of the shortest stop asked for
  bool closed_ = false;
};

}  // namespace executors::local
