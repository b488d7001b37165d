#pragma once

#include <spdlog/spdlog.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "net/listen_address.h"

namespace musterd {

/// A port that the system chose is asked for again by the next musterd on this folder: ranks that go on meanwhile know
/// no other address.
class RememberedPorts {
 public:
  explicit RememberedPorts(std::filesystem::path file);

  /// Calls serve(address) with the remembered port, then with any; returns its server and sets the real port.
  template <typename Serve>
  auto serve(const char* name, net::ListenAddress& address, Serve serve) {
    const auto known = known_port(name);
    if (address.port == 0 && known > 0) {
      auto wanted = address;
      wanted.port = known;
      try {
        return keep(name, address, serve(wanted.text()));
      } catch (const std::runtime_error& e) {
        spdlog::warn("the {} port of the last time is taken, choosing another: {}", name, e.what());
      }
    }
    return keep(name, address, serve(address.text()));
  }
  void save() const;

 private:
  /// 0: none. A file that somebody has edited costs the port, never the start.
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
