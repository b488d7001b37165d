#pragma once

#include <spdlog/spdlog.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "net/listen_address.h"

namespace musterd {

/// Remembers the ports that the system chose. The next musterd on the data folder asks for the same ports, since
/// running ranks know no other address.
class RememberedPorts {
 public:
  explicit RememberedPorts(std::filesystem::path file);

  /// Calls serve(address) with the remembered port and, if that fails, with the given address. Returns the server and
  /// writes its port into `address`.
  template <typename Serve>
  auto serve(const char* name, net::ListenAddress& address, Serve serve) {
    const auto known = known_port(name);
    if (address.port == 0 && known > 0) {
      auto wanted = address;
      wanted.port = known;
      try {
        return keep(name, address, serve(wanted.text()));
      } catch (const std::runtime_error& e) {
        spdlog::warn("the {} port of the last run is taken, choosing another one: {}", name, e.what());
      }
    }
    return keep(name, address, serve(address.text()));
  }
  void save() const;

 private:
  /// 0: no port is remembered. A damaged file counts as none, so musterd starts all the same.
  std::uint16_t known_port(const char* name) const;
  template <typename Server>
  Server keep(const char* name, net::ListenAddress& address, Server server) {
    address.port = static_cast<std::uint16_t>(server->port());
    known_[name] = server->port();
    return server;
  }

  std::filesystem::path file_;
  nlohmann::json known_;
};

}  // namespace musterd
