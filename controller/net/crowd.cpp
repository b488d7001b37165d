#include "net/crowd.h"

#include <spdlog/spdlog.h>

#include <algorithm>

namespace net {
namespace {

constexpr std::chrono::minutes kTellEvery{1};
/// Of how many addresses it is counted how often they came.
constexpr std::size_t kMostAddresses = 256;

}  // namespace

const char* name_of(Port port) {
  return port == Port::kGrpc ? "gRPC" : "dashboard";
}

void Crowd::turned_away(Port port, const Address& from, Time now) {
  const std::lock_guard lock(mutex_);
  auto& state = at(port);
  if (state.count == 0 || now - state.last >= kCalmAfter) {
    const auto total = state.total;
    state = {};
    state.total = total;
    state.since = now;
  }
  ++state.total;
  ++state.count;
  state.last = now;
  if (state.from.size() < kMostAddresses || state.from.contains(from)) ++state.from[from];
  if (state.count < kMany || (state.is_crowd && now - state.told < kTellEvery)) return;
  state.is_crowd = true;
  state.told = now;
  spdlog::warn("{}", text_of(port, state, now));
}

void Crowd::look(Time now) {
  const std::lock_guard lock(mutex_);
  for (const auto port : kAllPorts) {
    auto& state = at(port);
    if (!state.is_crowd || now - state.last < kCalmAfter) continue;
    spdlog::info("the crowd at the {} port is over; {} connections without a token were turned away", name_of(port),
                 state.count);
    state.is_crowd = false;
    state.count = 0;
  }
}

bool Crowd::is_at(Port port, Time now) const {
  const std::lock_guard lock(mutex_);
  return at(port).is_crowd && now - at(port).last < kCalmAfter;
}

std::string Crowd::text_of(Port port, const State& state, Time now) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - state.since).count();
  const auto busiest = std::ranges::max_element(state.from, {}, [](const auto& one) { return one.second; });
  return std::string("a crowd at the ") + name_of(port) + " port: " + std::to_string(state.count) +
         " connections without a token were turned away in " + std::to_string(std::max<std::int64_t>(seconds, 1)) +
         " s, most of them from " + net::text_of(busiest->first) +
         "; who is connected already does not notice, others may need several tries; end what connects there, or "
         "let a firewall do so";
}

std::string Crowd::text(Time now) const {
  const std::lock_guard lock(mutex_);
  std::string all;
  for (const auto port : kAllPorts) {
    const auto& state = at(port);
    if (!state.is_crowd || now - state.last >= kCalmAfter) continue;
    all += (all.empty() ? "" : "; ") + text_of(port, state, now);
  }
  return all;
}

std::uint64_t Crowd::total(Port port) const {
  const std::lock_guard lock(mutex_);
  return at(port).total;
}

}  // namespace net
