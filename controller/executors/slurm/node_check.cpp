#include "executors/slurm/node_check.h"

#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "os/signals_blocked.h"

namespace executors::on_slurm {
namespace {

using boost::asio::ip::tcp;

/// The port of a slurm.conf that names none.
constexpr const char* kSlurmdPort = "6818";
/// At most so many nodes are told for one failed launch.
constexpr std::size_t kMostTold = 256;

/// One place where a node's slurmd may listen.
struct Place {
  std::string node, host, port;
  bool is_looked_up = false;
  std::optional<tcp::endpoint> address = {};  // nullopt after the look-up: the name has no address
};

std::optional<tcp::endpoint> look_up(const Place& place, tcp::resolver::flags flags = {}) {
  boost::asio::io_context io;
  boost::system::error_code failed;
  const auto found = tcp::resolver(io).resolve(place.host, place.port, flags, failed);
  return failed || found.empty() ? std::nullopt : std::optional(found.begin()->endpoint());
}

std::atomic<bool> names_are_looked_up = false;

/// Names to look up. The threads may be stuck at a name server long after the caller has stopped waiting.
struct Names {
  std::mutex mutex;
  std::condition_variable done;
  std::vector<Place> places;
  std::size_t next = 0;
  int threads = 0;

  void look_up_all() {
    std::unique_lock lock(mutex);
    while (next < places.size()) {
      const auto mine = next++;
      const auto place = places[mine];
      lock.unlock();
      auto address = look_up(place);
      lock.lock();
      places[mine].address = std::move(address);
      places[mine].is_looked_up = true;
    }
    leave();
  }
  /// The caller holds the lock.
  void leave() {
    if (--threads > 0) return;
    names_are_looked_up = false;
    done.notify_all();
  }
};

/// Starts threads of their own that take no signals.
void begin_threads(const std::shared_ptr<Names>& names, int count) {
  const os::SignalsBlocked blocked;
  for (int i = 0; i < count; ++i) {
    try {
      std::thread([names] { names->look_up_all(); }).detach();
    } catch (const std::system_error&) {  // no room for one more thread: the others do its part
      const std::lock_guard lock(names->mutex);
      names->leave();
    }
  }
}

/// Fills the addresses of places. A few threads look names up. While the threads of an earlier call are stuck, no name
/// is looked up.
void look_up_within(std::vector<Place>& places, core::Millis limit) {
  constexpr std::size_t kThreads = 8;
  const auto names = std::make_shared<Names>();
  std::vector<std::size_t> numbers;
  for (std::size_t i = 0; i < places.size(); ++i) {
    places[i].address = look_up(places[i], tcp::resolver::numeric_host);
    places[i].is_looked_up = places[i].address.has_value();
    if (places[i].is_looked_up) continue;
    numbers.push_back(i);
    names->places.push_back(places[i]);
  }
  if (numbers.empty() || names_are_looked_up.exchange(true)) return;
  names->threads = static_cast<int>(std::min(kThreads, numbers.size()));
  begin_threads(names, names->threads);
  std::unique_lock lock(names->mutex);
  names->done.wait_for(lock, limit, [&] { return names->threads == 0; });
  for (std::size_t i = 0; i < numbers.size(); ++i) places[numbers[i]] = names->places[i];
}

}  // namespace

NodeCheck::Word NodeCheck::word(const std::string& name, core::Millis now) {
  auto& node = nodes_.try_emplace(name, Node{now, std::nullopt}).first->second;
  if (node.answered_at && now - *node.answered_at >= (node.is_told ? kFresh : kKept)) node = {now, std::nullopt};
  if (node.answered_at) {
    node.is_told = true;
    return node.answers ? Word::kAnswers : Word::kSilent;
  }
  return now - node.asked_at < kPatience ? Word::kAsking : Word::kSilent;
}

std::vector<std::string> NodeCheck::wanted() const {
  std::vector<std::string> names;
  for (const auto& [name, node] : nodes_) {
    if (!node.answered_at) names.push_back(name);
  }
  return names;
}

void NodeCheck::answered(const std::string& name, bool answers, core::Millis now) {
  const auto found = nodes_.find(name);
  if (found == nodes_.end()) return;
  found->second.answered_at = now;
  found->second.answers = answers;
}

void NodeCheck::forget_old(core::Millis now) {
  std::erase_if(nodes_, [&](const auto& entry) { return now - entry.second.asked_at >= kForgottenAfter; });
}

std::vector<std::string> ports_of(const ::slurm::Node& node, const std::string& slurmd_port) {
  constexpr unsigned kMostPorts = 16;
  const auto own = node.field("Port");
  const auto& text = own.empty() ? slurmd_port : own;
  unsigned first = 0, last = 0;
  const char* end = text.data() + text.size();
  const auto from = std::from_chars(text.data(), end, first);
  if (from.ec != std::errc() || first == 0) return {kSlurmdPort};
  const bool range = from.ptr != end && *from.ptr == '-';
  if (!range || std::from_chars(from.ptr + 1, end, last).ec != std::errc()) last = first;
  std::vector<std::string> ports;
  for (auto port = first; port <= last && ports.size() < kMostPorts; ++port) ports.push_back(std::to_string(port));
  return ports;
}

std::map<std::string, bool> ask(const std::vector<::slurm::Node>& nodes, const std::string& slurmd_port,
                                core::Millis limit) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + limit;
  std::map<std::string, bool> answers;
  std::vector<Place> places;
  for (const auto& node : nodes) {
    if (!node.should_answer()) {
      answers[node.name] = false;
      continue;
    }
    const auto ports = ports_of(node, slurmd_port);
    if (places.size() + ports.size() > kMostAskedAtOnce) break;
    for (const auto& port : ports) places.push_back({node.name, node.address.empty() ? node.name : node.address, port});
  }
  look_up_within(places, limit / 2);
  boost::asio::io_context io;
  std::deque<tcp::socket> attempts;
  std::set<std::string> unasked;
  for (const auto& place : places) {
    if (!place.is_looked_up) continue;
    auto& answer = answers.try_emplace(place.node, false).first->second;
    if (!place.address) continue;
    // A program that is started meanwhile must not inherit it, as it would a socket that Asio opens.
    const int fd = ::socket(place.address->protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
      unasked.insert(place.node);  // there was no descriptor left
      continue;
    }
    attempts.emplace_back(io, place.address->protocol(), fd);
    attempts.back().async_connect(*place.address,
                                  [&answer](const boost::system::error_code& failed) { answer = answer || !failed; });
  }
  io.run_until(until);
  for (const auto& node : unasked) {
    if (!answers.at(node)) answers.erase(node);
  }
  return answers;
}

std::vector<core::EventBody> nodes_without_launch(const std::vector<::slurm::Node>& nodes, core::Time since,
                                                  const std::vector<std::string>& left_out,
                                                  core::AttemptNumber attempt) {
  std::vector<core::EventBody> facts;
  for (const auto& node : nodes) {
    const auto at = node.why_since();
    if (!node.failed_a_launch() || !at || *at < since || facts.size() == kMostTold) continue;
    if (std::ranges::find(left_out, node.name) != left_out.end()) continue;
    core::NodeLost lost{attempt, node.name, core::Millis(0)};
    lost.why = "Slurm could not start the job on it (" + node.why() + ")";
    facts.emplace_back(std::move(lost));
  }
  return facts;
}

}  // namespace executors::on_slurm
