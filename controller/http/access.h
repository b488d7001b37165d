#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "controller/http/message.h"

namespace service {
class Controller;
}

namespace http {

/// The most sessions that are open at once. One more closes the oldest.
inline constexpr std::size_t kMaxSessions = 256;
inline constexpr std::chrono::hours kSessionLife{24 * 7};

/// The ids of sessions, in memory only. After a restart of musterd the pages log in again by themselves. Thread-safe.
class Sessions {
 public:
  using Clock = std::chrono::steady_clock;

  /// Opens a session. Returns its id, 256 random bits.
  std::string open(Clock::time_point now);
  bool is_open(const std::string& id, Clock::time_point now);
  void close(const std::string& id) {
    const std::lock_guard lock(mutex_);
    ends_.erase(id);
  }

 private:
  using Ends = std::unordered_map<std::string, Clock::time_point>;
  std::mutex mutex_;
  Ends ends_;
};

/// Decides which requests are allowed. A request needs the token or a session. Requests from other sites' pages and
/// requests to a foreign host name are refused.
class Access {
 public:
  /// `host` and `port`: the address that the server listens on.
  Access(service::Controller& controller, std::string host, int port);

  /// The first check of every request; nullopt: the request may go on. Checks the Host header (against DNS rebinding).
  /// For requests that change something, also checks the headers Origin and X-Muster (against CSRF).
  std::optional<Response> refuse_foreign(const Request& request) const;
  /// 401 unless the request carries the token or a session's cookie.
  std::optional<Response> refuse_stranger(const Request& request);

  Response log_in(const Request& request);
  Response log_out(const Request& request);

 private:
  bool is_own_host(const std::string& host) const;

  service::Controller& controller_;
  const std::string host_;
  const std::string cookie_;  // the cookie's name; it holds the port, since all ports of a host share cookies
  Sessions sessions_;
};

}  // namespace http
