#pragma once

#include <chrono>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "http/message.h"

namespace runtime {
class Controller;
}

namespace http {

/// Browsers logged in at once; one more logs the oldest out.
inline constexpr std::size_t kMaxSessions = 256;
inline constexpr std::chrono::hours kSessionLife{24 * 7};

/// Session ids, kept in memory alone: after a restart of musterd pages log in again by themselves. Thread-safe.
class Sessions {
 public:
  using Clock = std::chrono::steady_clock;

  /// A new session's id: 256 random bits in hexadecimal.
  std::string open(Clock::time_point now);
  bool is_open(const std::string& id, Clock::time_point now);
  void close(const std::string& id);

 private:
  std::mutex mutex_;
  std::list<std::string> order_;  // oldest first
  std::unordered_map<std::string, std::pair<Clock::time_point, std::list<std::string>::iterator>> open_;
};

/// Who may ask what: the token or a session; no other page's scripts; no name that only seems to be this machine.
class Access {
 public:
  /// `host` and `port`: where the server listens.
  Access(runtime::Controller& controller, std::string host, int port);

  /// Why this request is refused before anything else is looked at; nothing if it may go on. Checks the Host header
  /// (DNS rebinding), and for requests that change something the Origin and the X-Muster header (CSRF).
  std::optional<Response> refuse_foreign(const Request& request) const;
  /// 401 unless the request carries the token or a session's cookie.
  std::optional<Response> refuse_stranger(const Request& request);

  Response log_in(const Request& request);
  Response log_out(const Request& request);

 private:
  bool is_own_host(const std::string& host) const;

  runtime::Controller& controller_;
  const std::string host_;
  const std::string cookie_;  // its name; holds the port, for cookies are shared by all ports of a host
  Sessions sessions_;
};

}  // namespace http
