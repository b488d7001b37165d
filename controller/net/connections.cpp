#include "controller/net/connections.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/numbers.h"

namespace net {
namespace {

constexpr std::chrono::seconds kTidyEvery{1};
constexpr std::chrono::milliseconds kSweepEvery{50};
constexpr std::chrono::minutes kTellEvery{1};

// The process itself gets a quarter, within these bounds. An idle musterd has about 25 open; a Slurm command takes 8.
constexpr std::uint64_t kFewestOwn = 40, kMostOwn = 2048;
// More descriptors would not help: memory runs out first.
constexpr std::uint64_t kMostDescriptors = 262'144;
constexpr std::uint64_t kFewestStrangers = 2, kMostStrangers = 64;
constexpr std::uint64_t kFewestAsking = 3, kMostAsking = 128;
constexpr std::uint64_t kFewestWaiting = 5, kMostWaiting = 768;
constexpr std::uint64_t kFewestPeople = 4, kMostPeople = 512;

const char* name_of(Party party) {
  return party == Party::kPerson ? "people" : "ranks";
}

}  // namespace

Shares shares_of(std::uint64_t descriptors) {
  const auto all = std::clamp(descriptors, kFewestDescriptors, kMostDescriptors);
  const auto left = all - std::clamp(all / 4, kFewestOwn, kMostOwn);
  const auto strangers = std::clamp(left / 32, kFewestStrangers, kMostStrangers);
  const auto asking = std::clamp(left / 16, kFewestAsking, kMostAsking);
  const auto waiting = std::clamp(left / 8, kFewestWaiting, kMostWaiting);
  const auto people = std::clamp(left / 8, kFewestPeople, kMostPeople);
  return {strangers, waiting, people, left - 2 * strangers - asking - waiting - people, asking};
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
  const auto port = base::whole_number<std::uint16_t>(peer.substr(last + 1));
  // "127.0.0.1", "[::1]" or "%5B::1%5D"; a scope is left out: "%5Bfe80::1%25eth0%5D".
  auto host = peer.substr(first + 1, last - first - 1);
  for (const std::string_view bracket : {"[", "%5B", "%5b"}) {
    if (host.starts_with(bracket)) host.remove_prefix(bracket.size());
  }
  host = host.substr(0, host.find_first_of("%]"));
  const auto address = address_of(std::string(host));
  if (!port || !address) return std::nullopt;
  return Ends{*address, *port, local_port};
}

bool Connections::take_stranger(int socket, Time now) {
  const auto entry = entry_of(socket, now);
  if (!entry) return true;  // gone already: its server notices
  const std::lock_guard lock(mutex_);
  if (strangers_.size() >= shares_.strangers) see_off(now);
  if (strangers_.size() >= shares_.strangers) return false;
  add(entry->first, entry->second);
  return true;
}

/// Shuts down one stranger whose time is over. One that is closed already counts too.
void Connections::see_off(Time now) {
  forget_shut_down();
  const bool crowd = asking_ > shares_.strangers;
  for (const auto id : strangers_) {
    auto& entry = entries_.at(id);
    if (!is_open(id, entry.socket)) return forget(id);
    if (closing_.size() >= shares_.strangers || !had_its_time(entry, now, crowd)) continue;
    crowd_.turned_away(entry.caller.port, std::get<Address>(entry.ends), Crowd::Why::kNoPlace, now);
    return shut_down(id);
  }
}

bool Connections::had_its_time(Entry& entry, Time now, bool crowd) const {
  if (entry.is_our_turn) return now - entry.patient_since >= kOurTurn;
  if (!entry.is_valid) return now - entry.patient_since >= (crowd ? kGraceInACrowd : kGrace);
  // It has a token, so bytes are a sign of work.
  tcp_info info{};
  socklen_t size = sizeof info;
  ::getsockopt(entry.socket, IPPROTO_TCP, TCP_INFO, &info, &size);
  if (const auto said = info.tcpi_bytes_received + info.tcpi_bytes_sent; said != entry.said) {
    entry.said = said;
    entry.patient_since = now;
  }
  return now - entry.patient_since >= kGrace;
}

std::optional<std::pair<Connections::Id, Connections::Entry>> Connections::entry_of(int socket, Time now) const {
  const auto id = cookie_of(socket);
  const auto ends = ends_of(socket);
  if (id == 0 || !ends) return std::nullopt;
  Entry entry;
  entry.socket = socket;
  entry.ends = *ends;
  entry.since = entry.patient_since = now;
  return std::pair(id, entry);
}

void Connections::add(Id id, Entry entry) {
  entry.place = strangers_.insert(strangers_.end(), id);
  by_ends_[entry.ends] = id;
  if (entry.is_named(Party::kPerson)) ++persons_[entry.caller.whose];
  entries_[id] = std::move(entry);
}

std::string Connections::why_full(Party party) const {
  return "max_connections: all " + std::to_string(share(party)) + " connections reserved for " + name_of(party) +
         " are open; raise musterd's limit of open files (LimitNOFILE, ulimit -n), or try again";
}

std::string Connections::admit(int socket, const Caller& caller, Time now) {
  auto entry = entry_of(socket, now);
  if (!entry) return "the connection is closed";
  const auto id = entry->first;
  entry->second.caller = caller;
  const std::lock_guard lock(mutex_);
  if (auto full = why_full(caller, now); !full.empty()) return full;
  add(id, entry->second);
  promote(id, entries_.at(id), caller.party, now);
  if (strangers_.size() <= shares_.strangers) return "";
  // Its party's share is used up. It takes turns with those that have been quiet.
  see_off(now);
  if (strangers_.size() <= shares_.strangers || !entries_.contains(id)) return "";
  forget(id);
  return why_full(caller.party);
}

std::string Connections::why_full(const Caller& caller, Time now) {
  const bool is_person = caller.party == Party::kPerson;
  const auto most = std::max<std::size_t>(share(caller.party) / 2, 1);
  const auto is_full = [&] {
    if (!is_person) return ranks_ >= shares_.ranks;
    const auto found = persons_.find(caller.whose);
    return found != persons_.end() && found->second >= most;
  };
  if (!is_person && !caller.whose.empty() && attempts_.contains(caller.whose)) {
    auto& ranks = attempts_.at(caller.whose).ranks;
    ranks = std::max<std::size_t>(ranks, caller.ranks);
  }
  if (is_full() && now - swept_ >= kSweepEvery) forget_closed(now);
  if (!is_full()) return "";
  if (!is_person) return make_room_for(caller, now);
  return "max_connections_of_user: " + caller.whose + " has " + std::to_string(most) +
         " connections open, the most of one user; end some of them, or try again";
}

/// The share of ranks is used up. Returns why the caller has to stay out; empty: there is room, or it takes turns.
std::string Connections::make_room_for(const Caller& caller, Time now) {
  const auto own = attempts_.find(caller.whose);
  if (own != attempts_.end() && own->second.ids.size() >= kOfARank * own->second.ranks) {
    return "max_connections_of_attempt: " + caller.whose + " has " + std::to_string(own->second.ids.size()) +
           " connections open for " + std::to_string(own->second.ranks) + " ranks, and all " +
           std::to_string(shares_.ranks) + " connections reserved for ranks are open; end some of them, or try again";
  }
  auto worst = attempts_.end();
  for (auto one = attempts_.begin(); one != attempts_.end(); ++one) {
    if (!one->second.has_too_many()) continue;
    const auto& [ranks, ids] = one->second;
    if (worst == attempts_.end() || ids.size() * worst->second.ranks > worst->second.ids.size() * ranks) worst = one;
  }
  forget_shut_down();
  if (worst == attempts_.end() || closing_.size() >= shares_.strangers) return "";
  if (now - gave_way_told_ >= kTellEvery) {
    gave_way_told_ = now;
    spdlog::warn("{} has {} connections for {} ranks, and others need a place: its newest ones are closed",
                 worst->first, worst->second.ids.size(), worst->second.ranks);
  }
  shut_down(worst->second.ids.back());
  return "";
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
  if (!valid()) return;
  const std::lock_guard lock(mutex_);
  const auto id = by_ends_.find(*ends);
  if (id != by_ends_.end()) promote(id->second, entries_.at(id->second), party, now);
}

void Connections::asked(int socket, Time now) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(cookie_of(socket));
  if (found == entries_.end() || found->second.party != Party::kStranger) return;
  found->second.is_our_turn = true;
  found->second.patient_since = now;
}

void Connections::answered(int socket, Time now) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(cookie_of(socket));
  if (found == entries_.end() || !found->second.is_our_turn) return;
  found->second.is_our_turn = false;
  found->second.patient_since = now;
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
    if (entry.is_named(Party::kRank)) {
      auto& attempt = attempts_[entry.caller.whose];
      attempt.ranks = std::max<std::size_t>(attempt.ranks, entry.caller.ranks);
      entry.seat = attempt.ids.insert(attempt.ids.end(), id);
    }
    return;
  }
  entry.is_valid = true;
  entry.is_our_turn = false;
  entry.patient_since = now;
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
  if (entry.is_named(Party::kPerson)) {
    const auto person = persons_.find(entry.caller.whose);
    if (--person->second == 0) persons_.erase(person);
  }
  if (entry.party == Party::kRank && entry.is_named(Party::kRank)) {
    const auto attempt = attempts_.find(entry.caller.whose);
    attempt->second.ids.erase(entry.seat);
    if (attempt->second.ids.empty()) attempts_.erase(attempt);
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

std::shared_ptr<Connections> connections_of_this_process() {
  return std::make_shared<Connections>(shares_of(base::open_files_limit().soft));
}

}  // namespace net
