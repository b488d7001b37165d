#include "controller/net/crowd.h"

#include <spdlog/spdlog.h>

#include <exception>
#include <numeric>

#include "base/durable_file.h"
#include "base/numbers.h"

namespace net {

void KnownNetworks::know(const Address& address, Time now) {
  const auto network = network_of(address);
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] = networks_.try_emplace(network, Heard{now, now});
  at->second.last = now;
  if (is_new || now - at->second.noted >= kNotedFor) {
    at->second.noted = now;
    if (!std::exchange(has_news_, true) && on_news_) on_news_();
  }
  if (networks_.size() > kMostKnown) forget_the_oldest();
}

bool KnownNetworks::is_known(const Address& network, Time now) const {
  const std::lock_guard lock(mutex_);
  const auto found = networks_.find(network);
  return found != networks_.end() && now - found->second.last < kKnownFor;
}

std::string KnownNetworks::text(Time now, WallSeconds wall) {
  const std::lock_guard lock(mutex_);
  has_news_ = false;
  std::erase_if(networks_, [&](const auto& one) { return now - one.second.last >= kKnownFor; });
  std::string text;
  for (const auto& [network, heard] : networks_) {
    const auto age = std::chrono::duration_cast<std::chrono::seconds>(now - heard.last);
    text += std::to_string((wall - age).count()) + " " + text_of(network) + "\n";
  }
  return text;
}

std::size_t KnownNetworks::read(std::string_view text, Time now, WallSeconds wall) {
  const std::lock_guard lock(mutex_);
  std::size_t wrong = 0;
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const auto space = std::min(line.find(' '), line.size());
    const auto heard = base::whole_number<std::int64_t>(line.substr(0, space));
    const auto address = address_of(std::string(line.substr(std::min(space + 1, line.size()))));
    if (!heard || !address || *heard < 0 || networks_.size() >= kMostKnown) {
      ++wrong;
      continue;
    }
    // A clock that was set back makes nobody known for longer.
    const auto age = wall - std::min(wall, std::chrono::seconds(*heard));
    if (age < kKnownFor) networks_.try_emplace(network_of(*address), Heard{now - age, now});
  }
  return wrong;
}

namespace {

/// A line has at most 57 bytes.
constexpr std::size_t kMostBytes = 64 * KnownNetworks::kMostKnown;

KnownNetworks::WallSeconds wall_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch());
}

constexpr std::chrono::minutes kTellEvery{1};
/// The most addresses whose arrivals are counted.
constexpr std::size_t kMostAddresses = 256;
constexpr std::array<const char*, Crowd::kReasons> kWhy{"for want of a place", "without a valid token",
                                                        "with words of no call or too many", "without a call in time",
                                                        "with a token but no place of its own"};

}  // namespace

KnownNetworksFile::KnownNetworksFile(std::filesystem::path path, std::shared_ptr<KnownNetworks> networks, bool threads)
    : path_(std::move(path)),
      networks_(std::move(networks)),
      loop_("known-networks", "the known networks were not written", threads, [this] { return step(); }) {
  read();
  networks_->on_news([this] { loop_.wake(); });
  loop_.start();
}

void KnownNetworksFile::read() {
  try {
    const auto text = base::read_small_file(path_, kMostBytes);
    const auto wrong = networks_->read(text, std::chrono::steady_clock::now(), wall_now());
    if (wrong == 0) return;
    spdlog::warn("{}: what is no network was left out (lines: {}); the file is written anew with the next news",
                 path_.string(), wrong);
  } catch (const std::exception& error) {
    spdlog::warn("{}; until a token comes, every network is a stranger's", error.what());
  }
}

std::optional<core::Millis> KnownNetworksFile::step() {
  if (!networks_->has_news()) return std::nullopt;
  if (!std::exchange(gathers_, true)) return failed_ ? kAfterTrouble : kEvery;
  gathers_ = false;
  try {
    base::write_file_durably(path_, networks_->text(std::chrono::steady_clock::now(), wall_now()));
    failed_ = false;
  } catch (const std::exception& error) {
    spdlog::warn("{}; the networks that are known now are written after the next news", error.what());
    failed_ = true;
  }
  return std::nullopt;
}

const char* name_of(Port port) {
  return port == Port::kGrpc ? "gRPC" : "dashboard";
}

std::uint64_t Crowd::all(const State& state) {
  return std::accumulate(state.count.begin(), state.count.end(), std::uint64_t{0});
}

void Crowd::turned_away(Port port, const Address& from, Why why, Time now) {
  const std::lock_guard lock(mutex_);
  auto& state = at(port);
  if (state.newest.empty() || now - state.newest.back() >= kCalmAfter) {
    state = {};
    state.since = now;
  }
  ++totals_[static_cast<std::size_t>(port)];
  ++state.count[static_cast<std::size_t>(why)];
  state.newest.push_back(now);
  if (state.newest.size() > kMany) state.newest.pop_front();
  if (state.from.size() < kMostAddresses || state.from.contains(from)) ++state.from[from];
  if (!state.is_crowd) {
    state.is_crowd = state.newest.size() == kMany && now - state.newest.front() < kCalmAfter;
    if (!state.is_crowd) return;
  } else if (now - state.told < kTellEvery) {
    return;
  }
  state.told = now;
  spdlog::warn("{}", text_of(port, state, now));
}

void Crowd::look(Time now) {
  const std::lock_guard lock(mutex_);
  for (const auto port : kAllPorts) {
    auto& state = at(port);
    if (!state.is_crowd || goes_on(state, now)) continue;
    spdlog::info("the crowd at the {} port is over; {} connections were turned away", name_of(port), all(state));
    state = {};
  }
}

std::string Crowd::text_of(Port port, const State& state, Time now) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - state.since).count();
  const auto busiest = std::ranges::max_element(state.from, {}, [](const auto& one) { return one.second; });
  std::string reasons;
  for (std::size_t i = 0; i < kReasons; ++i) {
    if (state.count[i] == 0) continue;
    reasons += (reasons.empty() ? "" : ", ") + std::to_string(state.count[i]) + " " + kWhy[i];
  }
  return std::string("a crowd at the ") + name_of(port) + " port: " + std::to_string(all(state)) +
         " connections were turned away in " + std::to_string(std::max<std::int64_t>(seconds, 1)) + " s (" + reasons +
         "), most of them from " + net::text_of(busiest->first) +
         "; who is connected already does not notice, others may need several tries; end what connects there, or "
         "let a firewall do so";
}

std::string Crowd::text(Time now) const {
  const std::lock_guard lock(mutex_);
  std::string all;
  for (const auto port : kAllPorts) {
    const auto& state = at(port);
    if (!goes_on(state, now)) continue;
    all += (all.empty() ? "" : "; ") + text_of(port, state, now);
  }
  return all;
}

std::optional<WaitingRoom::Id> WaitingRoom::enter(Id id, const Address& from, Time now) {
  Entry entry{network_of(from), now, turns_.insert(turns_.end(), id), 0};
  auto& network = networks_[entry.network];
  if (network.ids.empty()) network.is_known = known_->is_known(entry.network, now);
  entry.seat = network.ids.size();
  network.ids.push_back(id);
  here_[id] = entry;
  if (here_.size() <= places_) return std::nullopt;
  const auto leaves = victim(now);
  leave(leaves);
  return leaves;
}

WaitingRoom::Id WaitingRoom::victim(Time now) {
  if (const auto oldest = turns_.front(); now - here_.at(oldest).since > kFairTime) return oldest;
  const Network* busiest = nullptr;
  for (const auto& [address, network] : networks_) {
    const bool is_worse = busiest == nullptr || network.is_known < busiest->is_known ||
                          (network.is_known == busiest->is_known && network.ids.size() > busiest->ids.size());
    if (is_worse) busiest = &network;
  }
  return busiest->ids[chance_() % busiest->ids.size()];
}

void WaitingRoom::leave(Id id) {
  const auto found = here_.find(id);
  if (found == here_.end()) return;
  const auto network = networks_.find(found->second.network);
  auto& ids = network->second.ids;
  // The last one takes the seat.
  ids[found->second.seat] = ids.back();
  here_.at(ids.back()).seat = found->second.seat;
  ids.pop_back();
  if (ids.empty()) networks_.erase(network);
  turns_.erase(found->second.turn);
  here_.erase(found);
}

void WaitingRoom::know(const Address& address, Time now) {
  known_->know(address, now);
  const auto here = networks_.find(network_of(address));
  if (here != networks_.end()) here->second.is_known = true;
}

std::vector<WaitingRoom::Id> WaitingRoom::overdue(Time now) {
  std::vector<Id> late;
  while (!turns_.empty() && now - here_.at(turns_.front()).since >= patience_) {
    late.push_back(turns_.front());
    leave(late.back());
  }
  return late;
}

}  // namespace net
