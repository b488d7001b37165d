#pragma once

#include <spdlog/spdlog.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "controller/net/address.h"

namespace musterd {

/// Below the ports that Linux gives to outgoing connections (32768 and up): none of these takes a port away while
/// musterd is not there.
inline constexpr const char* kUsualPorts = "20000-29999";

struct PortRange {
  std::uint16_t low = 0, high = 0;

  /// The ports to try, at most kMostTries, from a place that differs from user to user, so that many users of a machine
  /// find a free one at once. `part`: which of the user's ports it is.
  std::vector<std::uint16_t> in_order(std::uint32_t user, std::uint32_t part) const;
  static constexpr std::size_t kMostTries = 200;
};

/// "20000-29999". Throws UsageError that names the flag.
PortRange parse_port_range(const char* flag, const std::string& text);

/// The place of one of musterd's ports, as --listen or --http says it.
struct PortChoice {
  net::ListenAddress address;  // port 0: the system chooses one, or is_auto
  bool is_auto = false;        // one of `range`
  PortRange range;
};

/// Remembers the ports that were not named. The next musterd on the data folder asks for the same ports, since running
/// ranks know no other address.
class RememberedPorts {
 public:
  explicit RememberedPorts(std::filesystem::path file);

  /// Calls serve(address) with the remembered port and, if that fails, with the others of the choice. Returns the
  /// server and writes its port into `choice`. Throws what the last try throws.
  template <typename Serve>
  auto serve(const char* name, PortChoice& choice, Serve serve) {
    const auto ports = ports_for(name, choice);
    for (std::size_t tried = 0;; ++tried) {
      auto address = choice.address;
      address.port = ports[tried];
      try {
        auto server = serve(address.text());
        choice.address.port = static_cast<std::uint16_t>(server->port());
        known_[name] = server->port();
        return server;
      } catch (const std::runtime_error& e) {
        if (tried + 1 == ports.size()) throw;
        if (tried == 0 && known_.contains(name)) {
          spdlog::warn("the {} port of the last run is taken, choosing another one: {}", name, e.what());
        }
      }
    }
  }
  /// Throws std::system_error that names the file.
  void save() const;

 private:
  /// The remembered port first, if any may be chosen.
  std::vector<std::uint16_t> ports_for(const char* name, const PortChoice& choice) const;
  /// 0: no port is remembered. A damaged file counts as none, so musterd starts all the same.
  std::uint16_t known_port(const char* name) const;

  std::filesystem::path file_;
  nlohmann::json known_;
};

}  // namespace musterd
