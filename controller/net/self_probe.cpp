#include "controller/net/self_probe.h"

#include <netdb.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "base/fd.h"
#include "controller/net/http2.h"

namespace net {
namespace {

using Clock = std::chrono::steady_clock;
// Between two connections of one probe. Each pause is twice the one before, so a probe that is sent away time and again
// is no crowd by itself (Crowd: fifty in ten seconds).
constexpr std::chrono::milliseconds kFirstPause{50}, kLongestPause{800};

/// The address on which a client on this machine reaches a server that listens on `host`.
std::string reached_at(const std::string& host) {
  if (host == "0.0.0.0") return "127.0.0.1";
  return host == "::" ? "::1" : host;
}

/// Waits for `events`; false at the deadline.
bool wait_for(int fd, short events, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd watched{fd, events, 0};
    if (left <= 0) return false;
    if (::poll(&watched, 1, static_cast<int>(left)) > 0) return true;
  }
}

/// Probes with one connection. Returns the problem; empty: the answer was right.
std::string try_once(const addrinfo& to, const ProbedPort& port, Clock::time_point deadline) {
  const base::Fd socket(::socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return std::strerror(errno);
  const int fd = socket.get();
  if (::connect(fd, to.ai_addr, to.ai_addrlen) != 0 && errno != EINPROGRESS) return std::strerror(errno);
  if (!wait_for(fd, POLLOUT, deadline)) return "could not connect in time";
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return std::strerror(error);
  if (::send(fd, port.hello.data(), port.hello.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(port.hello.size())) {
    return std::strerror(errno);
  }
  std::string got;
  for (auto answer = port.judge(got); answer != ProbedPort::Answer::kRight; answer = port.judge(got)) {
    if (answer == ProbedPort::Answer::kWrong) return "the answer is not the expected one";
    if (!wait_for(fd, POLLIN, deadline)) return "no answer in time";
    std::array<char, 512> buffer;
    const auto count = ::recv(fd, buffer.data(), buffer.size(), 0);
    if (count == 0) return "the connection was closed without an answer";
    if (count < 0) return std::strerror(errno);
    got.append(buffer.data(), static_cast<std::size_t>(count));
  }
  return "";
}

}  // namespace

ProbedPort grpc_port(std::string host, int port, const std::string& token, std::function<void()> reopen) {
  using Answer = ProbedPort::Answer;
  const auto judge = [](const std::string& got) {
    switch (http2_answer_in(got)) {
      case Http2Answer::kMore:
        return Answer::kMore;
      case Http2Answer::kHeaders:
        return Answer::kRight;
      case Http2Answer::kNone:
        break;
    }
    return Answer::kWrong;
  };
  return {"gRPC", std::move(host),   port, http2_call("/muster.v1.AdminService/Probe", token),
          judge,  std::move(reopen), {}};
}

ProbedPort http_port(std::string host, int port, const std::string& token, std::function<void()> reopen) {
  using Answer = ProbedPort::Answer;
  const auto judge = [](const std::string& got) {
    static const std::string kWanted = "HTTP/1.1 400";
    if (got.compare(0, kWanted.size(), kWanted, 0, got.size()) != 0) return Answer::kWrong;
    return got.size() < kWanted.size() ? Answer::kMore : Answer::kRight;
  };
  const auto hello = "GET /%zz HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + token + "\r\n\r\n";
  return {"dashboard", std::move(host), port, hello, judge, std::move(reopen), {}};
}

std::string why_silent(const ProbedPort& port, std::chrono::milliseconds patience, bool once) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const auto host = reached_at(port.host);
  if (const int error = ::getaddrinfo(host.c_str(), std::to_string(port.port).c_str(), &hints, &list); error != 0) {
    return ::gai_strerror(error);
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, ::freeaddrinfo);
  // In a crowd the probe's connection may be sent away before it was read. So several tries are allowed.
  const auto deadline = Clock::now() + patience;
  for (auto pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    const auto why = try_once(*list, port, deadline);
    if (why.empty() || once || Clock::now() + pause >= deadline) return why;
    std::this_thread::sleep_for(pause);
  }
}

SelfProbe::SelfProbe(std::vector<ProbedPort> ports, ProbeTimes times, std::function<void(const std::string&)> give_up)
    : ports_(std::move(ports)),
      times_(times),
      give_up_(std::move(give_up)),
      failures_(ports_.size(), 0),
      loop_("self-probe", "musterd's own ports were not probed", true, [this] { return step(); }) {
  loop_.start(times_.every);
}

std::optional<core::Millis> SelfProbe::step() {
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    const auto& port = ports_[i];
    const auto why = why_silent(port, times_.patience);
    if (why.empty()) {
      if (failures_[i] > 0) spdlog::warn("the {} port {} answers again", port.name, port.port);
      failures_[i] = 0;
      continue;
    }
    if (port.is_crowded && port.is_crowded()) {
      spdlog::warn("the {} port {} was not reached in a crowd of strangers ({}); left as it is", port.name, port.port,
                   why);
      failures_[i] = 0;
      continue;
    }
    if (++failures_[i] >= kMostFailures) {
      give_up_("the " + port.name + " port " + std::to_string(port.port) + " has not answered " +
               std::to_string(kMostFailures) + " times, although it was opened again: " + why);
      return std::nullopt;
    }
    spdlog::error("the {} port {} does not answer ({}); opening it again", port.name, port.port, why);
    port.reopen();
  }
  const bool failed = std::ranges::any_of(failures_, [](int count) { return count > 0; });
  return failed ? std::min(times_.again, times_.every) : times_.every;
}

}  // namespace net
