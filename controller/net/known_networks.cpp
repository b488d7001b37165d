#include "controller/net/known_networks.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <exception>
#include <optional>
#include <utility>

#include "base/durable_file.h"

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

namespace {

/// A line has at most 57 bytes.
constexpr std::size_t kMostBytes = 64 * KnownNetworks::kMostKnown;

KnownNetworks::WallSeconds wall_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch());
}

}  // namespace

KnownNetworksFile::KnownNetworksFile(std::filesystem::path path, std::shared_ptr<KnownNetworks> networks, bool threads)
    : path_(std::move(path)),
      networks_(std::move(networks)),
      loop_("the known networks were not written", threads, [this] { return step(); }) {
  read();
  loop_.start(kEvery);
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
  if (!networks_->has_news()) return kEvery;
  try {
    base::write_file_durably(path_, networks_->text(std::chrono::steady_clock::now(), wall_now()));
    return kEvery;
  } catch (const std::exception& error) {
    spdlog::warn("{}; the networks that are known now are written after the next news", error.what());
    return kAfterTrouble;
  }
}

}  // namespace net
