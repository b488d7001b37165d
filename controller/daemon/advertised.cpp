#include "daemon/advertised.h"

#include <netdb.h>

#include <chrono>
#include <stdexcept>
#include <utility>

#include "daemon/usage_error.h"
#include "net/listen_address.h"
#include "os/patience.h"

namespace musterd {
namespace {

constexpr std::chrono::milliseconds kNamePatience{2'000};

}  // namespace

Advertised::Advertised(const base::Clock& clock, Resolve resolve) : clock_(clock), resolve_(std::move(resolve)) {}

void Advertised::set(const std::string& address) {
  net::ListenAddress parsed;
  try {
    parsed = net::parse_listen_address(address);
  } catch (const std::invalid_argument& e) {
    throw UsageError(std::string("--advertise ") + e.what());
  }
  if (parsed.port == 0) {
    throw UsageError("--advertise " + address + " has port 0: name the port by which ranks reach --listen");
  }
  const std::lock_guard lock(mutex_);
  address_ = address;
  host_ = parsed.host;
  asked_at_.reset();
}

std::string Advertised::address() const {
  const std::lock_guard lock(mutex_);
  return address_;
}

std::string Advertised::problem() {
  const auto now = clock_.monotonic();
  std::string address, host;
  {
    const std::lock_guard lock(mutex_);
    if (address_.empty() || (asked_at_ && now - *asked_at_ < kAgain)) return problem_;
    asked_at_ = now;
    address = address_;
    host = host_;
  }
  const auto why = resolve_(host);
  const std::lock_guard lock(mutex_);
  problem_ = why.empty()
                 ? ""
                 : "ranks look for musterd at " + address + ", and this machine knows no \"" + host + "\" (" + why +
                       "): start musterd with --advertise HOST:PORT, where HOST is a name or an address that "
                       "every node knows";
  return problem_;
}

std::string Advertised::ask_name_service(const std::string& host) {
  const auto answer = os::ask_within<std::string>(kNamePatience, [host] {
    addrinfo* found = nullptr;
    const int error = ::getaddrinfo(host.c_str(), nullptr, nullptr, &found);
    if (error == 0) ::freeaddrinfo(found);
    // A name service that does not answer says nothing of the name.
    const bool is_unknown = error == EAI_NONAME || error == EAI_FAIL;
    return is_unknown ? std::string(::gai_strerror(error)) : std::string();
  });
  return answer.value_or("");
}

}  // namespace musterd
