#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "controller/common/loop.h"
#include "controller/net/known_networks.h"

namespace net {

/// Keeps the known networks over a restart of musterd, which is when everybody comes at once. What it reads or writes
/// is only a hint: a file that is missing, wrong or cannot be written is told in the log, and nothing else follows. A
/// thread of its own does the writing, since a disk may stand still. The last kEvery before a crash are lost.
class KnownNetworksFile {
 public:
  static constexpr core::Millis kEvery{1000};
  static constexpr core::Millis kAfterTrouble{60'000};

  /// Reads the file. Without threads the caller calls step().
  KnownNetworksFile(std::filesystem::path path, std::shared_ptr<KnownNetworks> networks, bool threads);

  /// Writes the file if there is news.
  std::optional<core::Millis> step();

 private:
  void read();

  const std::filesystem::path path_;
  const std::shared_ptr<KnownNetworks> networks_;
  common::Loop loop_;
};

}  // namespace net
