#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/protocol/supervisor_words.h"
#include "base/fd.h"
#include "base/process_table.h"
#include "controller/core/event.h"
#include "controller/executors/executor.h"

namespace executors::local {

/// The processes left of an attempt whose supervisor is gone: its ranks, whatever shares their session, whatever was
/// started with `attempt_folder` in MUSTER_ATTEMPT_FOLDER or has overwritten its environment and writes into a rank's
/// log there, and the children of all these. Dead processes are not counted. Empty after a reboot.
///
/// torchrun's workers, and daemons, have sessions of their own, and init is their parent once the rank has died. Their
/// environment still tells whose they are. An empty `attempt_folder` is no mark.
std::vector<base::ProcessStat> leftovers(const agent::protocol::Started& started,
                                         const std::string& attempt_folder = {});

/// True if any rank itself (not what it started) still runs.
bool any_alive(const agent::protocol::Started& started);

/// The attempt's supervisor, if it is still there: the leader of the ranks' session, older than every rank.
std::optional<base::ProcessStat> supervisor_of(const agent::protocol::Started& started);

/// Follows one attempt to its end: tells RankExited for each rank not in `told`, once, and AttemptGone if the attempt
/// is over without that being known of every rank.
///
///   connecting <-> connected to the supervisor
///       |  supervisor gone (its lock is free); one that is there but does nothing (stopped, or stuck in the kernel) is
///       |  killed when ranks outlive a stop, or when all of them are gone and it says neither so nor that it waits
///       v
///   burying: kills what is left of the ranks until nothing is --> over
///
/// All calls, and all that it calls, in the io_context's one thread. Trouble in asking is retried for ever, with pauses
/// that grow up to kLongestPause.
class Follower : public std::enable_shared_from_this<Follower> {
 public:
  static constexpr std::chrono::milliseconds kShortestPause{10};
  static constexpr std::chrono::milliseconds kLongestPause{2000};
  static constexpr std::chrono::milliseconds kLookEvery{5000};
  /// Rounds in a row, in which a supervisor could have said something, before it counts as stuck.
  static constexpr int kRoundsAfterGrace = 2;
  static constexpr int kRoundsWithoutRanks = 6;
  /// Until musterd's log tells of a process that SIGKILL does not end, and until it tells so again.
  static constexpr std::chrono::seconds kTellLeftAfter{5}, kTellLeftAgain{600};

  struct Listener {
    std::function<void(core::EventBody)> tell;
    std::function<void()> over;  // the last call
    std::function<void(const std::map<core::RankNumber, agent::protocol::RankUse>&)> used = [](const auto&) {};
  };

  Follower(boost::asio::io_context& io, const core::AttemptKey& key, std::filesystem::path folder,
           std::set<core::RankNumber> told, Listener listener);

  /// `look_every`: how often it is looked whether the supervisor still does its work.
  void begin(std::chrono::milliseconds look_every = kLookEvery);
  /// Passed on at once, or as soon as the supervisor answers.
  void stop(const StopRequest& how);
  /// The stacks of its ranks are to be taken. Passed on at once, or as soon as the supervisor answers.
  void ask_stacks(std::uint64_t number);
  /// The supervisor could not be heard until now, or not do its work, or says why it waits: what it did not do counts
  /// from here on.
  void was_deaf();
  /// Calls nothing any more.
  void close();

 private:
  using Clock = std::chrono::steady_clock;

  void connect();
  void read();
  void send_stop();
  void send(const std::string& command);
  void look();
  void bury();
  std::vector<base::ProcessStat> left_behind();
  void tell_of_left(const base::ProcessStat& process);
  void look_after_supervisor();
  bool is_stuck();
  void kill_all();
  void take(const agent::protocol::Fact& fact);
  void gone(const std::string& reason);
  void finish();
  void later(void (Follower::*what)());
  std::string why_gone() const;

  const core::AttemptKey key_;
  const std::filesystem::path path_;
  std::set<core::RankNumber> told_;
  Listener listener_;
  base::Fd folder_;
  boost::asio::local::stream_protocol::socket socket_;
  boost::asio::steady_timer timer_;
  boost::asio::steady_timer rounds_;
  std::chrono::milliseconds look_every_ = kLookEvery;
  int rounds_after_grace_ = 0;
  int rounds_without_ranks_ = 0;
  bool was_stuck_ = false;
  std::string input_;
  agent::protocol::Status status_;
  std::optional<Clock::time_point> tell_left_at_;  // that a process does not end
  std::optional<std::string> mark_;                // MUSTER_ATTEMPT_FOLDER of its ranks, once it was asked for
  std::chrono::milliseconds pause_ = kShortestPause;
  std::optional<Clock::time_point> kill_at_;  // of the shortest stop asked for
  StopRequest stop_;                          // the first
  std::uint64_t stacks_ = 0;                  // the newest number asked for
  bool closed_ = false;
};

}  // namespace executors::local
