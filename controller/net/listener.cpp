#include "controller/net/listener.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "base/durable_file.h"

namespace net {
namespace {

using boost::asio::ip::tcp;
using Clock = std::chrono::steady_clock;

constexpr int kBacklog = 4096;
constexpr int kTurnMs = 1000;
/// The pause after an error, so that a lasting error does not keep a core busy.
constexpr int kErrorMs = 50;
constexpr int kReopenMs = 500;
/// How many connections are accepted before the other sockets have their turn.
constexpr int kMostATurn = 64;
/// All addresses of a host get the same port. Another program may use the chosen port on one of them.
constexpr int kPortTries = 20;
constexpr std::chrono::minutes kTellEvery{1};

std::string remedy(int error) {
  switch (error) {
    case EADDRINUSE:
      return "the address is in use: stop the process that listens there (another musterd?) or choose another port";
    case EADDRNOTAVAIL:
      return "no such address on this machine: listen on 127.0.0.1 or on one that `ip address` shows";
    case EACCES:
      return "not allowed: ports below 1024 need privileges; choose a higher one";
    default:
      return std::string(std::strerror(error)) + ": choose another address";
  }
}

/// Returns the socket, or none and sets errno. There is no SO_REUSEPORT: a second daemon on the port would get half of
/// the calls. SO_REUSEADDR lets a restarted daemon use its port at once.
base::Fd listen_on(const tcp::endpoint& address) {
  base::Fd fd(::socket(address.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fd;
  const int yes = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (address.address().is_v6()) {
    // "[::]" means every address of the machine, including its IPv4 addresses.
    const int only = address.address().is_unspecified() ? 0 : 1;
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
  }
  if (::bind(fd.get(), address.data(), static_cast<socklen_t>(address.size())) == 0 &&
      ::listen(fd.get(), kBacklog) == 0) {
    return fd;
  }
  const int error = errno;
  fd.reset();
  errno = error;
  return fd;
}

std::uint16_t port_of(int socket) {
  tcp::endpoint address;
  auto size = static_cast<socklen_t>(address.capacity());
  ::getsockname(socket, address.data(), &size);
  return address.port();
}

base::Fd open_spare() {
  return base::Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

/// True for errors of one connection or of the network. The listening socket still works.
bool passes(int error) {
  // EPERM comes from a firewall.
  constexpr int kPassing[] = {EINTR,       EAGAIN,    ECONNABORTED, EPROTO,      EPERM,      ENETDOWN,
                              ENETUNREACH, EHOSTDOWN, EHOSTUNREACH, ENOPROTOOPT, EOPNOTSUPP, ETIMEDOUT};
  return std::ranges::find(kPassing, error) != std::end(kPassing);
}

}  // namespace

Listener::Listener(const std::string& address, std::shared_ptr<Door> door) : door_(std::move(door)) {
  const auto fail = [&](const std::string& why) {
    return std::runtime_error("cannot listen on " + address + ": " + why);
  };
  ListenAddress where;
  try {
    where = parse_listen_address(address);
  } catch (const std::invalid_argument&) {
    throw fail("want host:port such as 127.0.0.1:7000");
  }
  host_ = where.host;
  bind_all(address, where);
  wake_ = base::Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  spare_ = open_spare();
  if (!wake_ || !spare_) throw fail(std::strerror(errno));
}

void Listener::bind_all(const std::string& text, const ListenAddress& where) {
  const auto prefix = "cannot listen on " + text + ": ";
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int problem = ::getaddrinfo(where.host.c_str(), std::to_string(where.port).c_str(), &hints, &list);
  if (problem != 0) {
    throw std::runtime_error(prefix + ::gai_strerror(problem) + "; want host:port such as 127.0.0.1:7000");
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, ::freeaddrinfo);
  for (int tried = 1;; ++tried) {
    int missing = 0, refused = 0;
    port_ = where.port;
    for (const addrinfo* at = list; at != nullptr && refused == 0; at = at->ai_next) {
      tcp::endpoint address;
      address.resize(at->ai_addrlen);
      std::memcpy(address.data(), at->ai_addr, at->ai_addrlen);
      address.port(port_);
      if (auto socket = listen_on(address)) {
        address.port(port_ = port_of(socket.get()));
        addresses_.push_back(address);
        sockets_.push_back(std::move(socket));
      } else if (errno == EADDRNOTAVAIL || errno == EAFNOSUPPORT) {
        missing = errno;  // "localhost" may resolve to ::1 on a machine without IPv6
      } else {
        refused = errno;
      }
    }
    if (refused == 0 && !sockets_.empty()) return;
    const bool again = refused == EADDRINUSE && where.port == 0 && !sockets_.empty() && tried < kPortTries;
    sockets_.clear();
    addresses_.clear();
    if (!again) throw std::runtime_error(prefix + remedy(refused != 0 ? refused : missing));
  }
}

void Listener::stop() {
  stopping_ = true;
  wake();
  if (thread_.joinable()) thread_.join();
  sockets_.clear();
}

void Listener::wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto wrote = ::write(wake_.get(), &one, sizeof one);
}

void Listener::rest(int milliseconds) const {
  pollfd woken{wake_.get(), POLLIN, 0};
  ::poll(&woken, 1, milliseconds);
}

void Listener::run() {
  std::vector<pollfd> watched;
  while (!stopping_) {
    watched.assign(1, {wake_.get(), POLLIN, 0});
    for (const auto& socket : sockets_) watched.push_back({socket.get(), POLLIN, 0});  // poll() ignores -1
    watched.push_back({door_->events(), POLLIN, 0});
    ::poll(watched.data(), watched.size(), door_->has_to_tidy() ? kTurnMs : -1);
    std::uint64_t ignored = 0;
    [[maybe_unused]] const auto got = ::read(wake_.get(), &ignored, sizeof ignored);
    door_->tidy(Clock::now());
    // Who is in already comes before who wants to come in.
    if (watched.back().revents != 0) door_->work(Clock::now());
    for (std::size_t place = 0; place < sockets_.size() && !stopping_; ++place) {
      if (watched[place + 1].revents != 0) accept_from(place);
    }
    if (broken_ && !stopping_) open_again();
  }
}

void Listener::accept_from(std::size_t place) {
  for (int taken = 0; taken < kMostATurn && !stopping_ && !broken_; ++taken) {
    const int socket = ::accept4(sockets_[place].get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    const int error = errno;
    if (socket >= 0) {
      take_in(socket);
    } else if (error == EAGAIN) {
      return;
    } else if (base::lacks_descriptors(error) || error == ENOBUFS || error == ENOMEM) {
      return turn_away(place, error);
    } else if (!passes(error)) {
      spdlog::error("port {}: accept: {}; opening the port again", port_, std::strerror(error));
      broken_ = true;
    }
  }
}

void Listener::take_in(int socket) {
  const int yes = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  door_->enter(socket, Clock::now());
}

// Closing the connection tells the client at once. Otherwise it would wait for a server that cannot accept it.
void Listener::turn_away(std::size_t place, int error) {
  if (base::lacks_descriptors(error) && spare_) {
    spare_.reset();
    const base::Fd turned_away(::accept4(sockets_[place].get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  if (!spare_) spare_ = open_spare();
  if (const auto now = Clock::now(); now - told_ >= kTellEvery) {
    told_ = now;
    spdlog::error(
        "port {}: a connection was turned away: {} (limit {}); raise musterd's limit of open files "
        "(LimitNOFILE, ulimit -n)",
        port_, std::strerror(error), base::open_files_limit().soft);
  }
  rest(kErrorMs);
}

void Listener::open_again() {
  for (auto& socket : sockets_) socket.reset();
  bool all = true;
  for (std::size_t place = 0; place < sockets_.size(); ++place) {
    sockets_[place] = listen_on(addresses_[place]);
    if (sockets_[place]) continue;
    const int error = errno;
    all = false;
    const auto now = Clock::now();
    if (now - told_ < kTellEvery) continue;
    told_ = now;
    spdlog::error("port {} cannot be opened again: {}; trying again", port_, std::strerror(error));
  }
  broken_ = !all;
  if (all) {
    spdlog::warn("port {} was opened again", port_);
  } else {
    rest(kReopenMs);
  }
}

}  // namespace net
