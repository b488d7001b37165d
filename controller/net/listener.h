#pragma once

#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "net/connections.h"
#include "net/listen_address.h"

namespace net {

/// A port that stays open whatever comes to it.
///
/// One thread accepts, enters each connection into `Connections` and hands it on. TCP_DEFER_ACCEPT is not used: a gRPC
/// client that reconnects polls only every five seconds, and needs the server's greeting at its first look, or gives
/// up. Without descriptors a connection is turned away with one kept for that, and the port goes on. Whatever else
/// happens to the listening socket, it is opened anew.
class Listener {
 public:
  /// Binds every address that the host of "host:port" resolves to; port 0: the system chooses one. Throws
  /// std::runtime_error that names address, cause and remedy; an address in use is refused, never shared.
  Listener(const std::string& address, std::shared_ptr<Connections> connections);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int port() const { return port_; }
  /// The host as it was given, without brackets.
  const std::string& host() const { return host_; }
  /// Accepts from now on. `take` gets a socket that does not block and is its own to close; it is called in the
  /// listener's thread, and must not throw.
  void start(std::function<void(int)> take);
  /// Closes the port; again is a no-op.
  void stop();
  /// Closes the listening sockets and opens them anew, soon.
  void reopen();

 private:
  struct Address {
    sockaddr_storage address{};
    socklen_t size = 0;
  };

  void bind_all(const std::string& text, const ListenAddress& where);
  void run();
  void accept_from(std::size_t place);
  void take_in(int socket);
  void turn_away(std::size_t place, int error);
  void open_again();
  void wake() const;
  /// Until woken, at most so long.
  void rest(int milliseconds) const;

  std::shared_ptr<Connections> connections_;
  std::string host_;
  int port_ = 0;
  std::vector<Address> addresses_;
  std::vector<int> sockets_;  // each listens on the address at its place; -1: could not be opened again yet
  int wake_ = -1;
  int spare_ = -1;
  Connections::Time told_{};
  std::function<void(int)> take_;
  std::atomic<bool> stopping_ = false, broken_ = false;
  std::thread thread_;
};

}  // namespace net
