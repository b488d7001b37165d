#include "controller/net/known_networks.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>

namespace net {

void KnownNetworks::know(const Address& address, Time now) {
  const auto network = network_of(address);
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] = networks_.try_emplace(network, Heard{now, now});
  at->second.last = now;
  if (is_new || now - at->second.noted >= kNotedFor) {
    at->second.noted = now;
    has_news_ = true;
  }
  if (networks_.size() > kMostKnown) forget_the_oldest();
}

void KnownNetworks::forget_the_oldest() {
  networks_.erase(std::ranges::min_element(networks_, {}, [](const auto& one) { return one.second.last; }));
}

bool KnownNetworks::is_known(const Address& network, Time now) const {
  const std::lock_guard lock(mutex_);
  const auto found = networks_.find(network);
  return found != networks_.end() && now - found->second.last < kKnownFor;
}

bool KnownNetworks::has_news() const {
  const std::lock_guard lock(mutex_);
  return has_news_;
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
    std::int64_t heard = 0;
    const char* end = line.data() + line.size();
    const auto [rest, error] = std::from_chars(line.data(), end, heard);
    std::optional<Address> address;
    if (error == std::errc() && rest != end && *rest == ' ') address = address_of(std::string(rest + 1, end));
    if (!address || heard < 0 || networks_.size() >= kMostKnown) {
      ++wrong;
      continue;
    }
    // A clock that was set back makes nobody known for longer.
    const auto age = wall - std::min(wall, std::chrono::seconds(heard));
    if (age < kKnownFor) networks_.try_emplace(network_of(*address), Heard{now - age, now});
  }
  return wrong;
}

}  // namespace net
