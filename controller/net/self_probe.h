#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace net {

/// A port as its clients see it.
struct ProbedPort {
  std::string name;  // "gRPC"
  std::string host;  // where it listens
  int port = 0;
  std::string hello;   // what a client says first
  std::string answer;  // what the server's answer begins with; '?' is any byte
  std::function<void()> reopen;
};

/// What an HTTP/2 client says first, and how any server answers: with its SETTINGS. Nothing of ours is asked, so an
/// answer is only that connections are taken and served, whatever the store or the disk do meanwhile.
ProbedPort grpc_port(std::string host, int port, std::function<void()> reopen);
/// A broken request, which is refused without anything of ours being asked.
ProbedPort http_port(std::string host, int port, std::function<void()> reopen);

/// Why nobody answers there; empty: somebody does. Takes `patience` at most.
std::string why_silent(const ProbedPort& port, std::chrono::milliseconds patience);

struct ProbeTimes {
  std::chrono::milliseconds every{60'000};
  std::chrono::milliseconds again{5'000};      // after a failure
  std::chrono::milliseconds patience{10'000};  // of one probe
};

/// Connects to our own ports from time to time, as a client would. A port that does not answer is opened anew; one that
/// fails kMostFailures times in a row can't be healed from within, and `give_up` is called, once, with the reason: the
/// process should end, so that it is started afresh.
class SelfProbe {
 public:
  static constexpr int kMostFailures = 3;

  SelfProbe(std::vector<ProbedPort> ports, ProbeTimes times, std::function<void(const std::string&)> give_up);
  ~SelfProbe();
  SelfProbe(const SelfProbe&) = delete;
  SelfProbe& operator=(const SelfProbe&) = delete;

 private:
  void run();
  /// False: stopping.
  bool pause(std::chrono::milliseconds time);

  const std::vector<ProbedPort> ports_;
  const ProbeTimes times_;
  const std::function<void(const std::string&)> give_up_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace net
