#include "controller/musterd/advertised.h"

#include <netdb.h>
#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <utility>

#include "base/patience.h"
#include "base/usage_error.h"
#include "controller/net/address.h"

namespace musterd {
namespace {

constexpr std::chrono::milliseconds kNamePatience{2'000};

}  // namespace

Advertised::Advertised(const common::Clock& clock, Resolve resolve) : clock_(clock), resolve_(std::move(resolve)) {}

void Advertised::set(const std::string& address) {
  net::ListenAddress parsed;
  try {
    parsed = net::parse_listen_address(address);
  } catch (const std::invalid_argument& e) {
    throw base::UsageError(std::string("--advertise ") + e.what());
  }
  if (parsed.port == 0) {
    throw base::UsageError("--advertise " + address + " has port 0: name the port by which ranks reach --listen");
  }
  const std::lock_guard lock(mutex_);
  address_ = address;
  host_ = parsed.host;
  asked_at_.reset();
}

Advertised::Found Advertised::look() {
  const auto now = clock_.monotonic();
  std::string address, host;
  {
    const std::lock_guard lock(mutex_);
    if (address_.empty() || (asked_at_ && now - *asked_at_ < kAgain)) return found_;
    asked_at_ = now;
    address = address_;
    host = host_;
  }
  const auto found = judge(address, host, resolve_(host));
  const std::lock_guard lock(mutex_);
  return found_ = found;
}

Advertised::Found Advertised::judge(const std::string& address, const std::string& host, const NameAnswer& answer) {
  const auto looked_for = "ranks look for musterd at " + address + ", and ";
  const std::string start = "start musterd with --advertise HOST:PORT, where HOST is a name or an address ";
  switch (answer.kind) {
    case NameAnswer::Kind::kKnown:
      return {};
    case NameAnswer::Kind::kUnknown:
      return {.problem = looked_for + "this machine knows no \"" + host + "\" (" + answer.detail + "): " + start +
                         "that every node knows",
              .doubt = {}};
    case NameAnswer::Kind::kNone:
      return {.problem = looked_for + "the name service of this machine does not answer for \"" + host + "\" (" +
                         answer.detail + "), so whether nodes find it is not known: musterd asks again later; if it " +
                         "stays so, mend the name service, or " + start + "that needs none, such as this machine's IP",
              .doubt = {}};
    case NameAnswer::Kind::kThisMachineAlone:
      return {
          .problem = {},
          .doubt = looked_for + "on this machine \"" + host + "\" is " + answer.detail +
                   ", which no other machine reaches (Debian writes such a line into /etc/hosts): a node that knows " +
                   "the name by the same line looks for musterd on itself. See what a node says: getent hosts " + host +
                   "; if it is wrong there, " + start + "by which nodes reach this machine"};
  }
  return {};
}

NameAnswer Advertised::ask_name_service(const std::string& host) {
  using Kind = NameAnswer::Kind;
  const auto answer = base::ask_within<NameAnswer>(kNamePatience, [host]() -> NameAnswer {
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int error = ::getaddrinfo(host.c_str(), nullptr, &wanted, &found);
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, [](addrinfo* all) {
      if (all != nullptr) ::freeaddrinfo(all);
    });
    if (error != 0) {
      const bool is_unknown =
          error == EAI_NONAME || error == EAI_FAIL || error == EAI_NODATA || error == EAI_ADDRFAMILY;
      return {is_unknown ? Kind::kUnknown : Kind::kNone, ::gai_strerror(error)};
    }
    // Who writes such an address, or "localhost", means this machine.
    if (net::ListenAddress{.host = host}.is_loopback()) return {};
    std::string first;
    for (const auto* one = found; one != nullptr; one = one->ai_next) {
      char text[NI_MAXHOST];
      if (::getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return {};
      if (!net::ListenAddress{.host = text}.is_loopback()) return {};
      if (first.empty()) first = text;
    }
    return {Kind::kThisMachineAlone, first};
  });
  return answer.value_or(
      NameAnswer{Kind::kNone, "no answer within " + std::to_string(kNamePatience.count() / 1000) + " s"});
}

}  // namespace musterd
