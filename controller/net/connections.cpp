#include "net/connections.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "os/open_files.h"

namespace net {
namespace {

constexpr std::chrono::seconds kTidyEvery{1};
constexpr std::chrono::milliseconds kSweepEvery{50};
constexpr std::chrono::minutes kTellEvery{1};

// The process itself gets a quarter, within these bounds. An idle musterd has about 25 open; a Slurm command takes 8.
constexpr std::uint64_t kFewestOwn = 40, kMostOwn = 2048;
// More descriptors would not help: memory runs out first.
constexpr std::uint64_t kMostDescriptors = 262'144;
constexpr std::uint64_t kFewestStrangers = 3, kMostStrangers = 128;
constexpr std::uint64_t kFewestWaiting = 6, kMostWaiting = 768;
constexpr std::uint64_t kFewestPeople = 4, kMostPeople = 512;

const char* name_of(Party party) {
  return party == Party::kPerson ? "people" : "ranks";
}

}  // namespace

Shares shares_of(std::uint64_t descriptors) {
  const auto all = std::clamp(descriptors, kFewestDescriptors, kMostDescriptors);
  const auto left = all - std::clamp(all / 4, kFewestOwn, kMostOwn);
  const auto strangers = std::clamp(left / 16, kFewestStrangers, kMostStrangers);
  const auto waiting = std::clamp(left / 8, kFewestWaiting, kMostWaiting);
  const auto people = std::clamp(left / 8, kFewestPeople, kMostPeople);
  return {strangers, waiting, people, left - 2 * strangers - waiting - people};
}

/// The kernel's number for this socket, which no other socket ever gets; 0: not an open socket.
Connections::Id Connections::cookie_of(int socket) {
  Id cookie = 0;
  socklen_t size = sizeof cookie;
  return ::getsockopt(socket, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

std::optional<Connections::Ends> Connections::ends_of(int socket) {
  const auto peer = peer_of(socket), here = here_of(socket);
  if (!peer || !here) return std::nullopt;
  return Ends{peer->address, peer->port, here->port};
}

std::optional<Connections::Ends> Connections::ends_of(std::uint16_t local_port, std::string_view peer) {
  const auto first = peer.find(':');
  const auto last = peer.rfind(':');
  if (first == std::string_view::npos || last <= first) return std::nullopt;
  std::uint16_t port = 0;
  const char* end = peer.data() + peer.size();
  if (std::from_chars(peer.data() + last + 1, end, port).ptr != end) return std::nullopt;
  // "127.0.0.1", "[::1]" or "%5B::1%5D"; a scope is left out: "%5Bfe80::1%25eth0%5D".
  auto host = peer.substr(first + 1, last - first - 1);
  for (const std::string_view bracket : {"[", "%5B", "%5b"}) {
    if (host.starts_with(bracket)) host.remove_prefix(bracket.size());
  }
  host = host.substr(0, host.find_first_of("%]"));
  const auto v6 = (host.find(':') == std::string_view::npos ? "::ffff:" : "") + std::string(host);
  Address address{};
  if (::inet_pton(AF_INET6, v6.c_str(), address.data()) != 1) return std::nullopt;
  return Ends{address, port, local_port};
}

bool Connections::make_room(Time now, std::size_t waiting) {
  const std::lock_guard lock(mutex_);
  forget_shut_down();
  if (closing_.size() >= shares_.strangers) return false;
  if (strangers_.size() >= shares_.strangers) see_off(now, waiting);
  return strangers_.size() < shares_.strangers;
}

/// Shuts down one stranger for each waiting connection. A stranger that is closed already counts too.
void Connections::see_off(Time now, std::size_t waiting) {
  const bool crowd = waiting > shares_.strangers;
  auto wanted = std::min(std::max<std::size_t>(waiting, 1), shares_.strangers - closing_.size());
  std::vector<Id> closed, late;
  for (const auto id : strangers_) {
    if (wanted == 0) break;
    auto& entry = entries_.at(id);
    const bool open = is_open(id, entry.socket);
    if (open && !had_its_time(entry, now, crowd)) continue;
    (open ? late : closed).push_back(id);
    --wanted;
  }
  for (const auto id : closed) forget(id);
  for (const auto id : late) {
    crowd_.turned_away(Port::kDashboard, std::get<Address>(entries_.at(id).ends), now);
    shut_down(id);
  }
}

bool Connections::had_its_time(Entry& entry, Time now, bool crowd) const {
  tcp_info info{};
  socklen_t size = sizeof info;
  int unread = 0;
  ::getsockopt(entry.socket, IPPROTO_TCP, TCP_INFO, &info, &size);
  ::ioctl(entry.socket, FIONREAD, &unread);
  if (const auto said = info.tcpi_bytes_received + info.tcpi_bytes_sent; said != entry.said) {
    entry.said = said;
    entry.quiet_since = now;
  }
  const bool may_have_called = info.tcpi_bytes_received >= kCallBytes && !entry.is_answered && !entry.is_valid;
  auto patience = std::chrono::milliseconds(kGrace);
  if (crowd) patience = info.tcpi_bytes_received == 0 ? kSilentInACrowd : kGraceInACrowd;
  if (unread > 0 || may_have_called) patience = kOurTurn;
  return now - entry.quiet_since >= patience;
}

std::optional<std::pair<Connections::Id, Connections::Entry>> Connections::entry_of(int socket, Time now) const {
  const auto id = cookie_of(socket);
  const auto ends = ends_of(socket);
  if (id == 0 || !ends) return std::nullopt;
  Entry entry;
  entry.socket = socket;
  entry.ends = *ends;
  entry.since = entry.quiet_since = now;
  return std::pair(id, entry);
}

void Connections::add(Id id, Entry entry) {
  entry.place = strangers_.insert(strangers_.end(), id);
  by_ends_[entry.ends] = id;
  if (!entry.whose.empty()) ++persons_[entry.whose];
  entries_[id] = std::move(entry);
}

void Connections::enter(int socket, Time now) {
  const auto entry = entry_of(socket, now);
  if (!entry) return;
  const std::lock_guard lock(mutex_);
  add(entry->first, entry->second);
}

std::string Connections::why_full(Party party) const {
  return "max_connections: all " + std::to_string(share(party)) + " connections reserved for " + name_of(party) +
         " are open; raise musterd's limit of open files (LimitNOFILE, ulimit -n), or try again";
}

std::string Connections::admit(int socket, Party party, const std::string& whose, Time now) {
  auto entry = entry_of(socket, now);
  if (!entry) return "the connection is closed";
  const std::lock_guard lock(mutex_);
  if (party == Party::kPerson) {
    entry->second.whose = whose;
    const auto most = std::max<std::size_t>(share(party) / 2, 1);
    const auto is_full = [&] { return persons_.contains(whose) && persons_.at(whose) >= most; };
    if (is_full() && now - swept_ >= kSweepEvery) forget_closed(now);
    if (is_full()) {
      return "max_connections_of_user: " + whose + " has " + std::to_string(most) +
             " connections open, the most of one user; end some of them, or try again";
    }
  }
  const auto id = entry->first;
  add(id, entry->second);
  promote(id, entries_.at(id), party, now);
  if (strangers_.size() <= shares_.strangers) return "";
  // Its party's share is used up. It takes turns with those that have been quiet.
  forget_shut_down();
  if (closing_.size() < shares_.strangers) see_off(now, 1);
  if (strangers_.size() <= shares_.strangers || !entries_.contains(id)) return "";
  forget(id);
  return why_full(party);
}

void Connections::know(int socket, Party party, Time now) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(cookie_of(socket));
  if (found != entries_.end()) promote(found->first, found->second, party, now);
}

void Connections::know(std::uint16_t local_port, const std::string& peer, Party party, Time now,
                       const std::function<bool()>& valid) {
  const auto ends = ends_of(local_port, peer);
  if (!ends) return;
  {
    const std::lock_guard lock(mutex_);
    const auto id = by_ends_.find(*ends);
    if (id == by_ends_.end() || entries_.at(id->second).party != Party::kStranger) return;
  }
  const bool is_valid = valid();
  const std::lock_guard lock(mutex_);
  const auto id = by_ends_.find(*ends);
  if (id == by_ends_.end()) return;
  auto& entry = entries_.at(id->second);
  entry.is_answered = !is_valid;
  if (is_valid) promote(id->second, entry, party, now);
}

void Connections::answered(int socket) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(cookie_of(socket));
  if (found != entries_.end()) found->second.is_answered = true;
}

void Connections::promote(Id id, Entry& entry, Party party, Time now) {
  if (entry.party != Party::kStranger) return;
  if (count(party) >= share(party) && now - swept_ >= kSweepEvery) {
    // forget_closed() usually keeps `entry`, since the caller's connection is open.
    forget_closed(now);
    if (!entries_.contains(id)) return;
  }
  if (count(party) < share(party)) {
    strangers_.erase(entry.place);
    entry.party = party;
    ++count(party);
    return;
  }
  entry.is_valid = true;
  entry.quiet_since = now;
  strangers_.splice(strangers_.end(), strangers_, entry.place);
  if (now - told_ < kTellEvery) return;
  told_ = now;
  spdlog::warn(
      "all {} connections reserved for {} are open, so further ones take turns: raise musterd's limit of open files "
      "(LimitNOFILE, ulimit -n)",
      share(party), name_of(party));
}

// The server may close the socket at any time, and its number may then mean another socket. So shutdown() goes through
// a duplicate of the descriptor, if the process has a descriptor left.
void Connections::shut_down(Id id) {
  const int socket = entries_.at(id).socket;
  const int own = ::fcntl(socket, F_DUPFD_CLOEXEC, 0);
  const int through = own >= 0 ? own : socket;
  if (is_open(id, through)) ::shutdown(through, SHUT_RDWR);
  if (own >= 0) ::close(own);
  closing_.emplace_back(id, socket);
  forget(id);
}

void Connections::forget(Id id) {
  const auto found = entries_.find(id);
  const auto& entry = found->second;
  if (entry.party == Party::kStranger) {
    strangers_.erase(entry.place);
  } else {
    --count(entry.party);
  }
  if (const auto person = persons_.find(entry.whose); person != persons_.end() && --person->second == 0) {
    persons_.erase(person);
  }
  const auto ends = by_ends_.find(entry.ends);
  if (ends != by_ends_.end() && ends->second == id) by_ends_.erase(ends);
  entries_.erase(found);
}

void Connections::forget_closed(Time now) {
  swept_ = now;
  std::vector<Id> closed;
  for (const auto& [id, entry] : entries_) {
    if (!is_open(id, entry.socket)) closed.push_back(id);
  }
  for (const auto id : closed) forget(id);
}

void Connections::forget_shut_down() {
  std::erase_if(closing_, [](const auto& closing) { return !is_open(closing.first, closing.second); });
}

void Connections::tidy(Time now) {
  const std::lock_guard lock(mutex_);
  if (now - tidied_ < kTidyEvery) return;
  tidied_ = now;
  crowd_.look(now);
  forget_shut_down();
  forget_closed(now);
  std::vector<Id> late;
  for (const auto id : strangers_) {
    const auto& entry = entries_.at(id);
    if (!entry.is_valid && now - entry.since >= kKnownWithin) late.push_back(id);
  }
  for (const auto id : late) shut_down(id);
}

Connections::Counts Connections::open() const {
  const std::lock_guard lock(mutex_);
  return {strangers_.size(), waiting_, people_, ranks_, closing_.size()};
}

std::shared_ptr<Connections> connections_of_this_process() {
  return std::make_shared<Connections>(shares_of(os::open_files_limit().soft));
}

}  // namespace net
