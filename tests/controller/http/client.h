#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

/// One TCP connection that speaks HTTP as a test writes it, byte for byte. Every wait is bounded by kPatienceSeconds;
/// what does not come is missing from the answer, and the test's expectation says so.
class Client {
 public:
  static constexpr int kPatienceSeconds = 10;

  explicit Client(int port);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  struct Answer {
    int status = 0;                              // 0: nothing came
    std::map<std::string, std::string> headers;  // names in lower case
    std::string body;
    nlohmann::json json() const { return nlohmann::json::parse(body, nullptr, false); }
    std::string error() const { return json().value("error", ""); }
  };

  /// False: the peer is gone.
  bool send(const std::string& bytes);
  /// Reads one answer, its body by Content-Length.
  Answer receive(bool head_only = false);
  /// Sends a request with Host, the given header lines ("Name: value"), and Content-Length when there is a body.
  Answer ask(const std::string& method, const std::string& target, const std::vector<std::string>& headers = {},
             const std::string& body = "");
  /// Of an event stream: reads until `text` was seen; returns everything since the last call, "" if it never came.
  std::string read_until(const std::string& text);
  /// True once the peer has closed.
  bool is_closed_by_peer();
  /// Makes the kernel take little, for slow readers. Before anything is received.
  void read_little();

 private:
  bool fill();

  int socket_ = -1;
  int port_ = 0;
  std::string buffer_;
};
