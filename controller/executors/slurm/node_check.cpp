#include "controller/executors/slurm/node_check.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/fd.h"
#include "base/signals_blocked.h"

namespace executors::on_slurm {
namespace {

/// The port of a slurm.conf that names none.
constexpr const char* kSlurmdPort = "6818";
/// At most so many nodes are told for one failed launch.
constexpr std::size_t kMostTold = 256;

struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;
};

/// One place where a node's slurmd may listen.
struct Place {
  std::string node, host, port;
  bool is_looked_up = false;
  std::optional<Address> address = {};  // nullopt after the look-up: the name has no address
};

std::optional<Address> look_up(const Place& place, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  if (::getaddrinfo(place.host.c_str(), place.port.c_str(), &hints, &list) != 0) return std::nullopt;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  if (list == nullptr || list->ai_addrlen > sizeof(sockaddr_storage)) return std::nullopt;
  Address address;
  std::memcpy(&address.bytes, list->ai_addr, list->ai_addrlen);
  address.size = list->ai_addrlen;
  return address;
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
      auto address = look_up(place, 0);
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
  const base::SignalsBlocked blocked;
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
    places[i].address = look_up(places[i], AI_NUMERICHOST);
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

/// A connection under way.
class Attempted {
 public:
  Attempted(std::string node, const Address& to)
      : node_(std::move(node)), fd_(::socket(to.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    if (!fd_) return;
    error_ = ::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&to.bytes), to.size) == 0 ? 0 : errno;
  }
  const std::string& node() const { return node_; }
  /// False: there was no descriptor left.
  bool is_begun() const { return static_cast<bool>(fd_); }
  bool is_under_way() const { return error_ == EINPROGRESS; }
  bool is_made() const { return error_ == 0; }
  pollfd waits() const { return {is_under_way() ? fd_.get() : -1, POLLOUT, 0}; }
  void take(const pollfd& said) {
    if (said.revents == 0) return;
    socklen_t size = sizeof error_;
    ::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error_, &size);
  }

 private:
  std::string node_;
  base::Fd fd_;
  int error_ = ECONNREFUSED;
};

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
  std::vector<Attempted> attempts;
  for (const auto& place : places) {
    if (!place.is_looked_up) continue;
    answers.try_emplace(place.node, false);
    if (place.address) attempts.emplace_back(place.node, *place.address);
  }
  while (std::ranges::any_of(attempts, &Attempted::is_under_way) && Clock::now() < until) {
    std::vector<pollfd> waits;
    for (const auto& attempt : attempts) waits.push_back(attempt.waits());
    const auto left = std::chrono::ceil<core::Millis>(until - Clock::now());
    ::poll(waits.data(), waits.size(), static_cast<int>(std::max<core::Millis>(left, core::Millis(0)).count()));
    for (std::size_t i = 0; i < attempts.size(); ++i) attempts[i].take(waits[i]);
  }
  for (const auto& attempt : attempts) {
    if (!attempt.is_begun()) answers.erase(attempt.node());
  }
  for (const auto& attempt : attempts) {
    if (attempt.is_made()) answers[attempt.node()] = true;
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
