#include "controller/executors/local/follower.h"

#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/read_until.hpp>
#include <stdexcept>
#include <system_error>

#include "agent/process/orphans.h"
#include "agent/protocol/files.h"
#include "agent/protocol/supervisor_words.h"
#include "agent/supervisor/attempt_folder.h"
#include "base/process_table.h"
#include "spec/variables.h"

namespace executors::local {
namespace {

using namespace agent::supervisor;
namespace variable = spec::variable;
using agent::protocol::RankProcess;
using agent::protocol::Started;
using std::chrono::milliseconds;
constexpr std::size_t kMaxLineBytes = 1 << 20;

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

std::optional<base::ProcessStat> supervisor_of(const Started& started) {
  if (started.boot_id != base::boot_id()) return std::nullopt;
  const auto leader = base::read_stat(started.session);
  if (!leader || leader->session != leader->pid || leader->is_dead()) return std::nullopt;
  const bool older =
      std::ranges::all_of(started.ranks, [&](const auto& rank) { return leader->start_time <= rank.start_time; });
  return older ? leader : std::nullopt;
}

Follower::Follower(boost::asio::io_context& io, const core::AttemptKey& key, std::filesystem::path folder,
                   std::set<core::RankNumber> told, Listener listener)
    : key_(key),
      path_(std::move(folder)),
      told_(std::move(told)),
      listener_(std::move(listener)),
      socket_(io),
      timer_(io),
      rounds_(io) {}

void Follower::begin(milliseconds look_every) {
  look_every_ = look_every;
  connect();
  look_after_supervisor();
}

void Follower::stop(const StopRequest& how) {
  const auto at = Clock::now() + how.grace;
  if (!kill_at_) stop_ = how;
  kill_at_ = kill_at_ ? std::min(*kill_at_, at) : at;
  if (socket_.is_open()) send_stop();
}

void Follower::ask_stacks(std::uint64_t number) {
  stacks_ = number;
  if (socket_.is_open()) send(agent::protocol::stacks_line(stacks_));
}

void Follower::was_deaf() {
  rounds_after_grace_ = rounds_without_ranks_ = 0;
}

void Follower::close() {
  closed_ = true;
  timer_.cancel();
  rounds_.cancel();
  boost::system::error_code ignored;
  socket_.close(ignored);
}

void Follower::connect() {
  try {
    if (!folder_) folder_ = open_folder(path_);
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::no_such_file_or_directory)
      return gone("no trace of it: no folder " + path_.string());
    return later(&Follower::connect);
  }
  auto fd = connect_in(folder_.get());
  if (!fd) return look();
  boost::system::error_code failed;
  socket_.assign(boost::asio::local::stream_protocol(), fd.get(), failed);
  if (failed) return later(&Follower::connect);
  fd.release();
  if (kill_at_) send_stop();
  // A supervisor answers a number once.
  if (stacks_ > 0) send(agent::protocol::stacks_line(stacks_));
  input_.clear();
  read();
}

void Follower::read() {
  boost::asio::async_read_until(
      socket_, boost::asio::dynamic_buffer(input_, kMaxLineBytes), '\n',
      [self = shared_from_this()](const boost::system::error_code& failed, std::size_t size) {
        if (self->closed_) return;
        if (!failed) {
          try {
            if (const auto fact = agent::protocol::parse_fact(self->input_.substr(0, size))) self->take(*fact);
            self->input_.erase(0, size);
            self->pause_ = kShortestPause;
            return self->read();
          } catch (const std::runtime_error&) {  // not a supervisor's words: ask again, and look at the file
          }
        }
        boost::system::error_code ignored;
        self->socket_.close(ignored);
        self->look();
      });
}

void Follower::send_stop() {
  const auto left = std::chrono::ceil<milliseconds>(*kill_at_ - Clock::now());
  send(agent::protocol::to_lines({std::max(left, milliseconds(0)), stop_.why, stop_.save, stop_.at_step}));
}

void Follower::send(const std::string& command) {
  // Never split: it is short, and the socket's buffer has room or takes nothing. A supervisor that does not read gets
  // it at the next connection.
  ::send(socket_.native_handle(), command.data(), command.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/// Nobody to talk to: what does the folder say?
void Follower::look() {
  bool supervised = true;
  try {
    // Before reading, so that what is read is the last word if the lock was free.
    const auto lock = try_lock(folder_.get());
    supervised = !lock;
    status_ = read_status(folder_.get());
  } catch (const std::system_error&) {
    return later(&Follower::connect);
  } catch (const std::runtime_error& error) {
    if (supervised) return later(&Follower::connect);
    return gone(error.what());
  }
  if (!status_.failed) {
    for (const auto& [rank, exited] : status_.exits) take(exited);
  }
  if (supervised && !status_.ended) return later(&Follower::connect);
  if (status_.failed) return gone("it could not be started: " + status_.failed->reason);
  if (status_.ended) return finish();
  if (!status_.started) return gone("no trace of it: nothing was started in " + path_.string());
  pause_ = kShortestPause;
  rounds_.cancel();
  bury();
}

/// The mark is what its ranks were given. A data folder that was moved has another path now.
std::vector<base::ProcessStat> Follower::left_behind() {
  if (!mark_) {
    const auto launch = read_local_launch(folder_.get());
    mark_.emplace();
    if (launch && launch->env.contains(variable::kAttemptFolder)) mark_ = launch->env.at(variable::kAttemptFolder);
  }
  return leftovers(*status_.started, *mark_);
}

void Follower::bury() {
  try {
    const auto left = left_behind();
    if (left.empty()) {
      return status_.exits.size() >= status_.started->ranks.size() ? finish() : gone(why_gone());
    }
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

void Follower::look_after_supervisor() {
  if (closed_) return;
  rounds_.expires_after(look_every_);
  rounds_.async_wait([self = shared_from_this()](const boost::system::error_code& cancelled) {
    if (cancelled || self->closed_) return;
    try {
      if (self->is_stuck()) self->kill_all();
    } catch (const std::runtime_error&) {  // asked again in the next round
    }
    self->look_after_supervisor();
  });
}

/// Rounds are counted, not time: if this process itself stood still, it first hears what it was told meanwhile.
bool Follower::is_stuck() {
  if (!status_.started) status_ = read_status(folder_.get());
  const bool all_known = status_.started && status_.exits.size() >= status_.started->ranks.size();
  if (!status_.started || status_.failed || all_known) return false;
  rounds_after_grace_ = kill_at_ && Clock::now() >= *kill_at_ ? rounds_after_grace_ + 1 : 0;
  rounds_without_ranks_ = any_alive(*status_.started) ? 0 : rounds_without_ranks_ + 1;
  return rounds_after_grace_ >= kRoundsAfterGrace || rounds_without_ranks_ >= kRoundsWithoutRanks;
}

void Follower::kill_all() {
  was_stuck_ = true;
  for (const auto& process : left_behind()) base::kill_exactly(process);
  if (const auto supervisor = supervisor_of(*status_.started)) base::kill_exactly(*supervisor);
}

std::string Follower::why_gone() const {
  std::string ranks;
  for (core::RankNumber rank = 0; rank < status_.started->ranks.size(); ++rank) {
    if (!status_.exits.contains(rank)) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  }
  const bool rebooted = status_.started->boot_id != base::boot_id();
  const auto* killed = was_stuck_ ? "its supervisor did nothing any more and was killed" : "its supervisor was killed";
  return std::string(rebooted ? "the machine was restarted" : killed) +
         "; no process is left, and how these ranks ended is not known: " + ranks;
}

void Follower::take(const agent::protocol::Fact& fact) {
  fold(status_, fact);
  if (const auto* used = std::get_if<agent::protocol::Used>(&fact)) listener_.used(used->ranks);
  if (std::holds_alternative<agent::protocol::Holds>(fact)) was_deaf();
  const auto* exited = std::get_if<agent::protocol::Exited>(&fact);
  if (!exited || status_.failed || !told_.insert(exited->rank).second) return;
  listener_.tell(core::RankExited{key_.number, exited->rank, exited->exit, exited->out_of_memory, "", exited->error});
}

void Follower::gone(const std::string& reason) {
  listener_.tell(core::AttemptGone{key_.number, core::Cause::kControllerLost, reason});
  finish();
}

void Follower::finish() {
  close();
  listener_.over();
}

void Follower::later(void (Follower::*what)()) {
  timer_.expires_after(pause_);
  pause_ = std::min(2 * pause_, kLongestPause);
  timer_.async_wait([self = shared_from_this(), what](const boost::system::error_code& cancelled) {
    if (!cancelled && !self->closed_) (*self.*what)();
  });
}

}  // namespace executors::local
