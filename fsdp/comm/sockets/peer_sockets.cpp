#include "fsdp/comm/sockets/peer_sockets.h"

#include <c10/util/Exception.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <sstream>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "fsdp/comm/sockets/connect.h"

namespace fsdp {
namespace {

using Clock = std::chrono::steady_clock;

/// A message of at most so many bytes is written by the caller. The thread writes longer ones while the caller
/// computes.
constexpr std::int64_t kWrittenAtOnce = 64 << 10;
constexpr std::chrono::seconds kHelloPatience{10};
constexpr std::chrono::milliseconds kLook{200};

/// Greeting that a rank sends first on a new connection.
struct Hello {
  std::uint64_t secret = 0;
  std::int64_t rank = 0;
};

/// False: the other end said less, or nothing in time.
bool read_hello(int fd, Hello& hello) {
  const auto deadline = Clock::now() + kHelloPatience;
  std::size_t have = 0;
  while (have < sizeof hello) {
    if (!net::is_ready(fd, POLLIN, deadline)) return false;
    const ssize_t count = ::recv(fd, reinterpret_cast<char*>(&hello) + have, sizeof hello - have, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    have += static_cast<std::size_t>(count);
  }
  return true;
}

}  // namespace

PeerSockets::PeerSockets(c10d::Store& store, PeerGroup group) : group_(std::move(group)) {
  for (int rank = 0; group_.peers.empty() && rank < group_.world_size; ++rank)
    if (rank != group_.rank) peers_.try_emplace(rank);
  for (const int rank : group_.peers) peers_.try_emplace(rank);
  meet(store);
  wake_fd_ = base::Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  TORCH_CHECK(wake_fd_, "connections of ranks: eventfd: ", std::strerror(errno));
  thread_ = std::thread([this] { run(); });
}

PeerSockets::~PeerSockets() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ends_ = true;
  }
  wake();
  thread_.join();
}

/// A rank connects to those before it, and accepts those after it. They know its secret from the store.
void PeerSockets::meet(c10d::Store& store) {
  const base::Fd listening = net::listen_at(group_.address);
  std::random_device random;
  const std::uint64_t secret = std::uint64_t{random()} << 32 | random();
  const std::string port = net::port_of(listening.get(), "connections of ranks: no port of the own socket: ");
  store.set("peer-" + std::to_string(group_.rank), std::to_string(secret) + " " + port + " " + group_.address);
  connect_before(store);
  accept_after(listening.get(), secret);
  for (const auto& [rank, peer] : peers_) net::set_options(peer.fd.get());
}

void PeerSockets::connect_before(c10d::Store& store) {
  for (auto& [other, peer] : peers_) {
    if (other > group_.rank) break;
    std::istringstream text(store.get_to_str("peer-" + std::to_string(other)));
    Hello hello{0, group_.rank};
    std::string port, host;
    text >> hello.secret >> port >> host;
    base::Fd socket = net::connect_to(host, port, group_.timeout);
    TORCH_CHECK(::send(socket.get(), &hello, sizeof hello, MSG_NOSIGNAL) == sizeof hello, "connections of ranks: rank ",
                other, " is gone");
    peer.fd = std::move(socket);
  }
}

void PeerSockets::accept_after(int listening, std::uint64_t secret) {
  const auto deadline = Clock::now() + group_.timeout;
  for (auto missing = std::distance(peers_.upper_bound(group_.rank), peers_.end()); missing > 0;) {
    while (group_.check_peers && !net::is_ready(listening, POLLIN, std::min(deadline, Clock::now() + kLook)) &&
           Clock::now() < deadline)
      group_.check_peers();
    TORCH_CHECK(net::is_ready(listening, POLLIN, deadline),
                "connections of ranks: waiting for later ranks: nobody within the timeout");
    base::Fd socket(::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC));
    Hello hello;
    if (!socket || !read_hello(socket.get(), hello) || hello.secret != secret || hello.rank <= group_.rank) continue;
    const auto known = peers_.find(static_cast<int>(hello.rank));
    if (known == peers_.end() || known->second.fd) continue;  // a stranger
    known->second.fd = std::move(socket);
    --missing;
  }
}

void PeerSockets::wake() {
  const std::uint64_t one = 1;
  (void)!::write(wake_fd_.get(), &one, sizeof one);
}

/// The caller holds the mutex, as for all that follows.
PeerSockets::Peer& PeerSockets::connected(int peer) {
  const auto known = peers_.find(peer);
  TORCH_CHECK(known != peers_.end(), "connections of ranks: rank ", group_.rank, " has none to rank ", peer);
  return known->second;
}

PeerSockets::Pending PeerSockets::post(const Peer& peer, std::uint64_t tag, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_contiguous() && tensor.is_cpu(), "connections of ranks: want contiguous tensors on the CPU");
  TORCH_CHECK(peer.error.empty(), peer.error);
  auto transfer = std::make_shared<Transfer>();
  transfer->group = this;
  transfer->tensor = tensor;
  transfer->tag = tag;
  transfer->bytes = static_cast<std::int64_t>(tensor.nbytes());
  return transfer;
}

PeerSockets::Pending PeerSockets::send(int peer, std::uint64_t tag, const at::Tensor& from) {
  std::unique_lock<std::mutex> lock(mutex_);
  Peer& to = connected(peer);
  auto transfer = post(to, tag, from);
  const bool was_idle = to.sends.empty();
  to.sends.push_back(transfer);
  ++messages_;
  if (was_idle && transfer->bytes <= kWrittenAtOnce) write_some(to, lock, /*unlocks=*/false);
  if (was_idle && !to.sends.empty()) wake();
  return transfer;
}

PeerSockets::Pending PeerSockets::receive(int peer, std::uint64_t tag, const at::Tensor& into, Then then) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Peer& from = connected(peer);
  auto transfer = post(from, tag, into);
  transfer->then = std::move(then);
  from.receives.push_back(transfer);
  if (from.is_parked) wake();
  return transfer;
}

std::int64_t PeerSockets::messages_sent() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return messages_;
}

void PeerSockets::Transfer::wait() {
  std::unique_lock<std::mutex> lock(group->mutex_);
  const auto timeout = group->group_.timeout;
  const bool ended = group->changed_.wait_for(lock, timeout, [this] { return done || !error.empty(); });
  if (!ended) group->fail_all("timed out after " + std::to_string(timeout.count()) + " ms");
  TORCH_CHECK(error.empty(), error);
}

void PeerSockets::abort(const std::string& why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  fail_all(why);
}

void PeerSockets::fail(Peer& peer, const std::string& why) {
  peer.error = why;
  if (peer.arriving) peer.receives.push_front(std::exchange(peer.arriving, nullptr));
  for (auto* list : {&peer.sends, &peer.receives}) {
    for (const Pending& transfer : *list) {
      transfer->error = why;
      if (transfer->then) failed_.emplace_back(std::exchange(transfer->then, nullptr), why);
    }
    list->clear();
  }
  if (!failed_.empty()) wake();
  ::shutdown(peer.fd.get(), SHUT_RDWR);
  changed_.notify_all();
}

void PeerSockets::fail_all(const std::string& why) {
  for (auto& [rank, peer] : peers_)
    if (peer.error.empty()) fail(peer, why);
  wake();
}

/// Writes what the kernel takes now. The first send stays in the list meanwhile, so only one thread writes.
void PeerSockets::write_some(Peer& peer, std::unique_lock<std::mutex>& lock, bool unlocks) {
  while (!peer.sends.empty()) {
    const Pending transfer = peer.sends.front();
    Header header{transfer->tag, transfer->bytes};
    constexpr std::int64_t kHeader = sizeof header;
    iovec parts[2];
    msghdr message{};
    message.msg_iov = parts;
    if (transfer->moved < kHeader) {
      parts[message.msg_iovlen++] = {reinterpret_cast<char*>(&header) + transfer->moved,
                                     static_cast<std::size_t>(kHeader - transfer->moved)};
    }
    const std::int64_t begin = std::max<std::int64_t>(0, transfer->moved - kHeader);
    if (begin < transfer->bytes) {
      parts[message.msg_iovlen++] = {static_cast<char*>(transfer->tensor.data_ptr()) + begin,
                                     static_cast<std::size_t>(transfer->bytes - begin)};
    }
    if (unlocks) lock.unlock();
    const ssize_t written = ::sendmsg(peer.fd.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    const int why = errno;
    if (unlocks) lock.lock();
    if (!peer.error.empty()) return;
    if (written < 0 && why == EINTR) continue;
    if (written < 0 && why == EAGAIN) return;
    if (written < 0) return fail(peer, std::string("the connection is gone: ") + std::strerror(why));
    transfer->moved += written;
    if (transfer->moved < kHeader + transfer->bytes) continue;
    transfer->done = true;
    transfer->tensor.reset();
    peer.sends.pop_front();
    changed_.notify_all();
  }
}

/// Takes the first posted receive that fits the header.
void PeerSockets::match(Peer& peer) {
  const auto fits = [&](const Pending& receive) {
    return receive->tag == peer.header.tag && receive->bytes == peer.header.bytes;
  };
  const auto found = std::find_if(peer.receives.begin(), peer.receives.end(), fits);
  peer.is_parked = found == peer.receives.end();
  if (peer.is_parked) return;
  peer.arriving = *found;
  peer.receives.erase(found);
}

/// Reads what has arrived, once. True: there may be more.
bool PeerSockets::read_some(Peer& peer, std::unique_lock<std::mutex>& lock) {
  constexpr std::int64_t kHeader = sizeof(Header);
  char* into = reinterpret_cast<char*>(&peer.header) + peer.header_read;
  std::int64_t wanted = kHeader - peer.header_read;
  if (wanted == 0) {
    if (!peer.arriving) match(peer);
    if (peer.is_parked) return false;
    into = static_cast<char*>(peer.arriving->tensor.data_ptr()) + peer.arriving->moved;
    wanted = peer.arriving->bytes - peer.arriving->moved;
  }
  const Pending transfer = peer.arriving;  // holds the memory while nobody holds the mutex
  if (wanted > 0) {
    lock.unlock();
    const ssize_t count = ::recv(peer.fd.get(), into, static_cast<std::size_t>(wanted), MSG_DONTWAIT);
    const int why = errno;
    lock.lock();
    if (!peer.error.empty()) return false;
    if (count < 0 && why == EINTR) return true;
    if (count < 0 && why == EAGAIN) return false;
    if (count <= 0) {
      fail(peer, count == 0 ? "the peer has closed the connection"
                            : std::string("the connection is gone: ") + std::strerror(why));
      return false;
    }
    (transfer ? transfer->moved : peer.header_read) += count;
  }
  if (transfer && transfer->moved == transfer->bytes) {
    transfer->done = true;
    transfer->tensor.reset();
    peer.arriving.reset();
    peer.header_read = 0;
    if (const Then then = std::exchange(transfer->then, nullptr)) {
      lock.unlock();
      then({});
      lock.lock();
    } else {
      changed_.notify_all();
    }
  }
  return peer.error.empty();
}

void PeerSockets::tell_failed(std::unique_lock<std::mutex>& lock) {
  while (!failed_.empty()) {
    const auto told = std::exchange(failed_, {});
    lock.unlock();
    for (const auto& [then, why] : told) then(why);
    lock.lock();
  }
}

void PeerSockets::run() {
  std::vector<pollfd> sockets;
  std::vector<Peer*> of_socket;
  std::unique_lock<std::mutex> lock(mutex_);
  while (!ends_) {
    sockets.assign(1, {wake_fd_.get(), POLLIN, 0});
    of_socket.assign(1, nullptr);
    for (auto& [rank, peer] : peers_) {
      if (!peer.error.empty()) continue;
      while (read_some(peer, lock)) {
      }
      write_some(peer, lock, /*unlocks=*/true);
      if (!peer.error.empty()) continue;
      const int events = (peer.is_parked ? 0 : POLLIN) | (peer.sends.empty() ? 0 : POLLOUT);
      sockets.push_back({peer.fd.get(), static_cast<short>(events), 0});
      of_socket.push_back(&peer);
    }
    tell_failed(lock);
    if (ends_) return;
    lock.unlock();
    (void)::poll(sockets.data(), sockets.size(), -1);
    if (sockets[0].revents != 0) {
      std::uint64_t count = 0;
      (void)!::read(wake_fd_.get(), &count, sizeof count);
    }
    lock.lock();
    for (std::size_t i = 1; i < sockets.size(); ++i) {
      Peer& peer = *of_socket[i];
      if (peer.is_parked && peer.error.empty() && (sockets[i].revents & (POLLERR | POLLHUP)) != 0)
        fail(peer, "the connection is gone");
    }
  }
}

}  // namespace fsdp
