#include "net/self_probe.h"

#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <cstring>
#include <thread>

namespace net {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPause{50};  // between two connections of one probe

/// The address on which a client on this machine reaches a server that listens on `host`.
std::string reached_at(const std::string& host) {
  if (host == "0.0.0.0") return "127.0.0.1";
  return host == "::" ? "::1" : host;
}

bool begins_with(const std::string& text, const std::string& wanted) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (i >= text.size() || (wanted[i] != '?' && wanted[i] != text[i])) return false;
  }
  return true;
}

/// Probes with one connection. Returns the problem; empty: the answer was right.
std::string try_once(const tcp::endpoint& to, const ProbedPort& port, Clock::time_point deadline) {
  // A program that is started meanwhile must not inherit it, as it would a socket that Asio opens.
  const int fd = ::socket(to.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::strerror(errno);
  boost::asio::io_context io;
  tcp::socket socket(io, to.protocol(), fd);
  std::string why = "could not connect in time", got;
  const auto on_answer = [&](const error_code& failed, std::size_t) {
    if (failed == boost::asio::error::eof) {
      why = "the connection was closed without an answer";
    } else if (failed) {
      why = failed.message();
    } else {
      why = begins_with(got, port.answer) ? "" : "the answer is not the expected one";
    }
  };
  socket.async_connect(to, [&](const error_code& failed) {
    error_code unsent;
    if (!failed) boost::asio::write(socket, boost::asio::buffer(port.hello), unsent);
    why = failed ? failed.message() : unsent ? unsent.message() : "no answer in time";
    if (failed || unsent) return;
    boost::asio::async_read(socket, boost::asio::dynamic_buffer(got, port.answer.size()), on_answer);
  });
  io.run_until(deadline);
  return why;
}

}  // namespace

ProbedPort grpc_port(std::string host, int port, std::function<void()> reopen) {
  // The HTTP/2 preface and an empty SETTINGS frame. The answer is a SETTINGS frame of any length.
  const std::string settings("\0\0\0\4\0\0\0\0\0", 9);
  return {"gRPC", std::move(host), port, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings, "\?\?\?\4", std::move(reopen)};
}

ProbedPort http_port(std::string host, int port, std::function<void()> reopen) {
  return {"dashboard", std::move(host), port, "GET\r\n\r\n", "HTTP/1.1 ", std::move(reopen)};
}

std::string why_silent(const ProbedPort& port, std::chrono::milliseconds patience, bool once) {
  boost::asio::io_context io;
  error_code unknown;
  const auto to = tcp::resolver(io).resolve(reached_at(port.host), std::to_string(port.port), unknown);
  if (unknown) return unknown.message();
  // The probe's connection is a stranger, which may be shut down for another one. So several tries are allowed.
  for (const auto deadline = Clock::now() + patience;;) {
    const auto why = try_once(to.begin()->endpoint(), port, deadline);
    if (why.empty() || once || Clock::now() + kPause >= deadline) return why;
    std::this_thread::sleep_for(kPause);
  }
}

SelfProbe::SelfProbe(std::vector<ProbedPort> ports, ProbeTimes times, std::function<void(const std::string&)> give_up)
    : ports_(std::move(ports)),
      times_(times),
      give_up_(std::move(give_up)),
      failures_(ports_.size(), 0),
      loop_("musterd's own ports were not probed", true, [this] { return step(); }) {
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
