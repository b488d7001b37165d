#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

/// A TCP connection on which a test sends HTTP byte by byte. Every wait ends after kPatienceSeconds. What has not
/// arrived by then is missing from the answer, so the test's expectation fails.
class Client {
 public:
  static constexpr int kPatienceSeconds = 10;

  explicit Client(int port);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  struct Answer {
    int status = 0;                              // 0: no answer came
    std::map<std::string, std::string> headers;  // names in lower case
    std::string body;
    nlohmann::json json() const { return nlohmann::json::parse(body, nullptr, false); }
    std::string error() const { return json().value("error", ""); }
  };

  /// Returns false if the peer is gone.
  bool send(const std::string& bytes);
  /// Reads one answer. Content-Length tells the length of its body.
  Answer receive(bool head_only = false);
  /// Sends a request with Host, the given header lines ("Name: value"), and Content-Length if there is a body.
  Answer ask(const std::string& method, const std::string& target, const std::vector<std::string>& headers = {},
             const std::string& body = "");
  /// Reads an event stream until `text` arrives. Returns everything since the last call, or "" if it never arrives.
  std::string read_until(const std::string& text);
  /// Waits until the peer has closed the connection.
  bool is_closed_by_peer();
  /// Makes the receive buffer small, to act as a slow reader. Call it before the first read.
  void read_little();

 private:
  bool fill();

  int socket_ = -1;
  int port_ = 0;
  std::string buffer_;
};
