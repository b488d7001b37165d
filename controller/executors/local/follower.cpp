#include "controller/executors/local/follower.h"

#include <spdlog/spdlog.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <boost/asio/post.hpp>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "agent/process/orphans.h"
#include "agent/protocol/attempt_folder.h"
#include "agent/protocol/files.h"

namespace executors::local {
namespace {

using agent::protocol::RankProcess;
using agent::protocol::Started;
using std::chrono::milliseconds;

std::optional<std::string> mark_in(int folder) {
  try {
    return agent::protocol::attempt_mark_in(folder);
  } catch (const std::runtime_error&) {
    return std::nullopt;
  }
}

}  // namespace

std::vector<base::ProcessStat> leftovers(const Started& started, const std::string& attempt_folder) {
  if (started.boot_id != base::boot_id()) return {};
  std::uint64_t began = UINT64_MAX;
  for (const auto& rank : started.ranks) began = std::min(began, rank.start_time);
  std::vector<base::ProcessStat> left, others;
  const auto real_folder = base::real_path(attempt_folder);
  const auto has_mark = [&](const base::ProcessStat& process) {
    if (attempt_folder.empty() || process.pid == ::getpid() || process.start_time < began) return false;
    if (const auto folder = agent::process::attempt_folder_of_process(process.pid)) return *folder == attempt_folder;
    // A process that renames itself may overwrite its environment. Its output still goes into a rank's log.
    return std::ranges::any_of(base::outputs_of_process(process.pid), [&](const std::string& file) {
      return agent::protocol::attempt_of_log(file) == real_folder;
    });
  };
  for (const auto& process : base::all_processes()) {
    if (process.is_dead()) continue;
    const bool is_rank =
        std::ranges::find(started.ranks, RankProcess{process.pid, process.start_time}) != started.ranks.end();
    // A session's number is not given out again while one of its processes lives.
    const bool of_a_rank = process.session == started.session && process.start_time >= began &&
                           std::ranges::find(started.ranks, process.group, &RankProcess::pid) != started.ranks.end();
    (is_rank || of_a_rank || has_mark(process) ? left : others).push_back(process);
  }
  base::add_started_by(left, others);
  return left;
}

bool any_alive(const Started& started) {
  if (started.boot_id != base::boot_id()) return false;
  return std::ranges::any_of(started.ranks, [](const auto& rank) {
    const auto now = base::read_stat(rank.pid);
    return now && now->start_time == rank.start_time && !now->is_dead();
  });
}

std::optional<base::ProcessStat> agent_of(const Started& started) {
  if (started.boot_id != base::boot_id()) return std::nullopt;
  const auto leader = base::read_stat(started.session);
  if (!leader || leader->session != leader->pid || leader->is_dead()) return std::nullopt;
  const bool older =
      std::ranges::all_of(started.ranks, [&](const auto& rank) { return leader->start_time <= rank.start_time; });
  return older ? leader : std::nullopt;
}

Follower::Follower(boost::asio::io_context& io, common::Errands& disk, const core::AttemptKey& key,
                   std::filesystem::path folder, std::set<core::RankNumber> told, Listener listener)
    : io_(io),
      disk_(disk),
      key_(key),
      path_(std::move(folder)),
      told_(std::move(told)),
      listener_(std::move(listener)),
      agent_(io),
      timer_(io),
      rounds_(io) {}

void Follower::begin(milliseconds look_every) {
  look_every_ = look_every;
  look();
  look_in_rounds();
}

void Follower::know(const Started& started, const std::optional<std::string>& mark) {
  if (!status_.started) status_.started = started;
  if (!mark_) mark_ = mark;
}

void Follower::exited(const agent::protocol::Exited& exited) {
  if (closed_ || status_.failed || !told_.insert(exited.rank).second) return;
  listener_.tell(core::RankExited{key_.number, exited.rank, exited.exit, exited.out_of_memory, "", exited.error});
  // The agent ends soon.
  if (!all_are_told() || is_burying_) return;
  pause_ = kShortestPause;
  later(&Follower::look);
}

void Follower::close() {
  closed_ = true;
  timer_.cancel();
  rounds_.cancel();
  boost::system::error_code ignored;
  agent_.close(ignored);
}

/// Asks the folder: is the lock held, and what does the status file say? In another thread: a disk that stands still
/// holds up neither the words of agents nor a stop.
void Follower::look() {
  if (std::exchange(is_looking_, true)) return;
  disk_.run(
      [self = shared_from_this(), wants_mark = !mark_] {
        auto what = look_into(self->path_, wants_mark);
        boost::asio::post(self->io_, [self, what = std::move(what)] {
          self->is_looking_ = false;
          if (self->closed_ || self->is_burying_) return;
          try {
            self->seen(what);
          } catch (const std::runtime_error&) {  // the kernel could not be asked, as without a free descriptor
            self->later(&Follower::look);
          }
        });
      },
      core::Millis(0));
}

Follower::Seen Follower::look_into(const std::filesystem::path& path, bool wants_mark) {
  Seen seen;
  base::Fd folder;
  try {
    folder = agent::protocol::open_folder(path);
    // Before reading, so that what is read is the last word if the lock was free.
    seen.is_held = !agent::protocol::try_lock(folder.get());
    seen.status = agent::protocol::read_status(folder.get());
    seen.answers = true;
  } catch (const std::system_error& error) {
    seen.is_missing = !folder && error.code() == std::errc::no_such_file_or_directory;
  } catch (const std::runtime_error& error) {
    seen.answers = true;
    seen.damage = error.what();
  }
  if (folder && wants_mark) seen.mark = mark_in(folder.get());
  return seen;
}

void Follower::seen(const Seen& what) {
  learn(what);
  for (const auto rank : status_.ends) exited(status_.exits.at(rank));
  const bool waits = what.answers && what.damage.empty() && what.is_held && !status_.ended;
  if (waits) return wait_for_agent();
  if (status_.failed) return gone("it could not be started: " + status_.failed->reason);
  if (status_.ended) return finish();
  const bool unclear = !what.answers || (what.is_held && !what.damage.empty());
  if (unclear && !what.is_missing) return later(&Follower::look);
  if (!status_.started) return gone(why_not_started(what));
  // The lock of an agent that is there is held: somebody has removed the file, or the folder.
  if (agent_of(*status_.started)) return later(&Follower::look);
  is_burying_ = true;
  pause_ = kShortestPause;
  rounds_.cancel();
  bury();
}

/// A start that is known stays known, whatever becomes of the file.
void Follower::learn(const Seen& what) {
  if (!mark_) mark_ = what.mark;
  if (!what.answers || !what.damage.empty()) return;
  if (what.status.started || !status_.started) status_ = what.status;
}

std::string Follower::why_not_started(const Seen& what) const {
  if (what.is_missing) return "no trace of it: no folder " + path_.string();
  return what.damage.empty() ? "no trace of it: nothing was started in " + path_.string() : what.damage;
}

/// It is there, and does its work as far as is known.
void Follower::wait_for_agent() {
  if (!agent_.is_open()) watch_agent();
  // Nobody tells of its end, or it ends soon; else it is looked at in rounds.
  if (!agent_.is_open() || all_are_told()) later(&Follower::look);
}

void Follower::watch_agent() {
  const auto agent = status_.started ? agent_of(*status_.started) : std::nullopt;
  if (!agent) return;
  base::Fd end(static_cast<int>(::syscall(SYS_pidfd_open, agent->pid, 0)));
  // The number may have become another's before it was opened.
  const auto again = agent_of(*status_.started);
  if (!end || !again || again->start_time != agent->start_time) return;
  boost::system::error_code failed;
  agent_.assign(end.get(), failed);
  if (failed) return;
  end.release();
  agent_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                    [self = shared_from_this()](const boost::system::error_code& cancelled) {
                      if (cancelled || self->closed_) return;
                      boost::system::error_code ignored;
                      self->agent_.close(ignored);
                      if (self->is_burying_) return;
                      self->pause_ = kShortestPause;
                      self->look();
                    });
}

/// The mark is what its ranks were given. A data folder that was moved has another path now.
std::vector<base::ProcessStat> Follower::left_behind() {
  if (!mark_) mark_ = look_into(path_, true).mark;
  if (!mark_ && std::filesystem::exists(path_)) throw std::runtime_error("the mark of its ranks cannot be read");
  return leftovers(*status_.started, mark_.value_or(""));
}

void Follower::bury() {
  try {
    const auto left = left_behind();
    if (left.empty()) return all_are_told() ? finish() : gone(why_gone());
    for (const auto& process : left) base::kill_exactly(process);
    tell_of_left(left.front());
  } catch (const std::runtime_error&) {  // asked again below
  }
  later(&Follower::bury);
}

void Follower::tell_of_left(const base::ProcessStat& process) {
  const auto now = Clock::now();
  if (!tell_left_at_) tell_left_at_ = now + kTellLeftAfter;
  if (now < *tell_left_at_) return;
  tell_left_at_ = now + kTellLeftAgain;
  spdlog::warn(
      "job {}, attempt {}: process {} ({}) that a rank left behind does not end by SIGKILL; the next attempt waits",
      key_.job, key_.number, process.pid, process.name);
}

void Follower::look_in_rounds() {
  if (closed_) return;
  rounds_.expires_after(look_every_);
  rounds_.async_wait([self = shared_from_this()](const boost::system::error_code& cancelled) {
    if (cancelled || self->closed_ || self->is_burying_) return;
    try {
      if (self->is_stuck()) self->kill_all();
    } catch (const std::runtime_error&) {  // asked again in the next round
    }
    self->is_looking_ = false;  // the disk may have taken no errand
    self->look();
    self->look_in_rounds();
  });
}

/// Rounds are counted, not time: if this process itself stood still, it first hears what it was told meanwhile.
bool Follower::is_stuck() {
  if (!status_.started || status_.failed || all_are_told()) return false;
  const bool has_run = agent_has_run(), lives = any_alive(*status_.started);
  const bool is_late = lives && kill_at_ && Clock::now() >= *kill_at_;
  rounds_after_grace_ = is_late ? rounds_after_grace_ + 1 : 0;
  rounds_without_ranks_ = has_run || lives ? 0 : rounds_without_ranks_ + 1;
  return rounds_after_grace_ >= (has_run ? kRoundsUnheard : kRoundsAfterGrace) ||
         rounds_without_ranks_ >= kRoundsWithoutRanks;
}

/// An agent whose ranks have ended looks every few milliseconds whether it may tell so. One that is stopped, or waits
/// in the kernel, does not.
bool Follower::agent_has_run() {
  const auto agent = agent_of(*status_.started);
  const auto ran = agent ? base::context_switches(agent->pid).value_or(0) : 0;
  return std::exchange(agent_ran_, ran) != ran;
}

void Follower::kill_all() {
  was_stuck_ = true;
  for (const auto& process : left_behind()) base::kill_exactly(process);
  if (const auto agent = agent_of(*status_.started)) base::kill_exactly(*agent);
}

std::string Follower::why_gone() const {
  std::string ranks;
  for (core::RankNumber rank = 0; rank < status_.started->ranks.size(); ++rank) {
    if (!told_.contains(rank)) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  }
  const bool rebooted = status_.started->boot_id != base::boot_id();
  const auto* killed = was_stuck_ ? "its agent did nothing any more and was killed" : "its agent was killed";
  return std::string(rebooted ? "the machine was restarted" : killed) +
         "; no process is left, and how these ranks ended is not known: " + ranks;
}

void Follower::later(void (Follower::*what)()) {
  timer_.expires_after(pause_);
  pause_ = std::min(2 * pause_, kLongestPause);
  timer_.async_wait([self = shared_from_this(), what](const boost::system::error_code& cancelled) {
    if (!cancelled && !self->closed_) (*self.*what)();
  });
}

}  // namespace executors::local
