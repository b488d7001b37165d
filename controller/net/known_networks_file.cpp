#include "controller/net/known_networks_file.h"

#include <spdlog/spdlog.h>

#include <exception>
#include <utility>

#include "base/durable_file.h"

namespace net {
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
