#pragma once

#include <pthread.h>

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "controller/net/address.h"

namespace net {

/// Who comes in at a listening port. Its Listener calls everything from one thread.
class Door {
 public:
  using Time = std::chrono::steady_clock::time_point;

  virtual ~Door() = default;
  /// A socket was accepted. The door owns it from now on.
  virtual void enter(int socket, Time now) = 0;
  /// Called after whatever happens, and at least once a second while has_to_tidy().
  virtual void tidy(Time now) = 0;
  /// Time alone changes something: somebody's patience will be over.
  virtual bool has_to_tidy() const = 0;
  /// A descriptor that is readable while work() has something to do.
  virtual int events() const = 0;
  /// Must not wait.
  virtual void work(Time now) = 0;
};

/// A server behind a Listener. Thread-safe.
class Server {
 public:
  virtual ~Server() = default;
  /// The port that the server listens on. The system chose it if the address had port 0.
  virtual int port() const = 0;
  /// Lets the listener's thread close the port and open it again.
  virtual void reopen() = 0;
  /// How many streams are open now.
  virtual std::size_t open_streams() const = 0;
  /// Takes no new connections and calls, ends streams, gives running calls a second, and then cancels them. Returns
  /// when all have ended. A second call is a no-op; the destructor calls it too. Call it before the controller stops.
  virtual void shutdown() = 0;
};

/// A listening port that survives overload and errors of its sockets.
///
/// One thread accepts connections and gives each to the door, as a non-blocking socket. If the process has no
/// descriptor left, the thread frees a spare one to accept and close the connection, so that the client is told at
/// once. After any other error of a listening socket the port is opened again.
///
/// TCP_DEFER_ACCEPT is not used. A gRPC client that reconnects looks at its socket only every five seconds. It gives up
/// if the server's greeting is not there at the first look.
class Listener {
 public:
  /// Binds every address that the host of "host:port" resolves to. With port 0 the system chooses a port. Throws
  /// std::runtime_error with address, cause and remedy. An address in use is an error; the port is never shared.
  Listener(const std::string& address, std::shared_ptr<Door> door);
  ~Listener() { stop(); }

  int port() const { return port_; }
  /// The host as it was given, without brackets.
  const std::string& host() const { return host_; }
  /// Starts to accept.
  void start() {
    thread_ = std::thread([this] { run(); });
    ::pthread_setname_np(thread_.native_handle(), "listener");
  }
  /// Closes the port. A second call is a no-op.
  void stop();
  /// Lets the listener's thread close the listening sockets and open them again.
  void reopen() {
    broken_ = true;
    wake();
  }

 private:
  void bind_all(const std::string& text, const ListenAddress& where);
  void run();
  void accept_from(std::size_t place);
  void take_in(int socket);
  void turn_away(std::size_t place, int error);
  void open_again();
  void wake() const;
  /// Sleeps until wake(), at most this long.
  void rest(int milliseconds) const;

  const std::shared_ptr<Door> door_;
  std::string host_;
  std::uint16_t port_ = 0;
  std::vector<boost::asio::ip::tcp::endpoint> addresses_;
  std::vector<base::Fd> sockets_;  // sockets_[i] listens on addresses_[i]; none: could not be opened again yet
  base::Fd wake_, spare_;
  Door::Time told_{};
  std::atomic<bool> stopping_ = false, broken_ = false;
  std::thread thread_;
};

}  // namespace net
