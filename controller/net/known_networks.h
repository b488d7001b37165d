#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "controller/common/loop.h"
#include "controller/net/address.h"

namespace net {

/// From which networks a valid token has come during the last day. In a crowd such a network gives way last, see
/// WaitingRoom. Both ports share one. It touches no file, see KnownNetworksFile. Thread-safe. The caller passes the
/// time.
class KnownNetworks {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// Since 1970.
  using WallSeconds = std::chrono::seconds;

  /// For how long a network stays known, and how many are.
  static constexpr std::chrono::hours kKnownFor{24};
  static constexpr std::size_t kMostKnown = 8192;
  /// A network that is heard again and again is noted anew, for the file, after so long.
  static constexpr std::chrono::hours kNotedFor{1};

  /// A call from this address was accepted.
  void know(const Address& address, Time now);
  bool is_known(const Address& network, Time now) const;

  /// True if text() has something new since the last call of it.
  bool has_news() const;
  /// For a file: a line for each network that is known, "<seconds since 1970> <address>".
  std::string text(Time now, WallSeconds wall);
  /// Takes what text() said before. Lines that are too old are left out. Returns how many lines are none of text()'s,
  /// which are left out, too, and so is whatever is beyond kMostKnown.
  std::size_t read(std::string_view text, Time now, WallSeconds wall);

 private:
  struct Heard {
    Time last{}, noted{};
  };
  void forget_the_oldest();

  mutable std::mutex mutex_;
  std::map<Address, Heard> networks_;
  bool has_news_ = false;
};

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
