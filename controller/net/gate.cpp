#include "net/gate.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "net/http2_answers.h"

namespace net {
namespace {

constexpr int kEventsATurn = 256;
constexpr std::size_t kReadAtOnce = 8 * 1024;
/// What a refused client has sent besides is read away, at most so much: closing over unread bytes resets the
/// connection, and the answer may be lost.
constexpr int kMostReadAway = 64 * 1024;
constexpr int kResourceExhausted = 8;

/// The kernel's buffer of a new connection is empty, so these few bytes fit.
void say(int socket, const std::string& text) {
  [[maybe_unused]] const auto sent = ::send(socket, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void read_away(int socket) {
  std::array<char, kReadAtOnce> ignored;
  for (int left = kMostReadAway; left > 0;) {
    const auto got = ::recv(socket, ignored.data(), ignored.size(), MSG_DONTWAIT);
    if (got <= 0) return;
    left -= static_cast<int>(got);
  }
}

}  // namespace

Gate::Gate(std::shared_ptr<Connections> connections, Rules rules)
    : connections_(std::move(connections)),
      rules_(std::move(rules)),
      events_(::epoll_create1(EPOLL_CLOEXEC)),
      room_(connections_->shares().waiting) {
  if (!events_) throw std::runtime_error(std::string("cannot watch connections: ") + std::strerror(errno));
}

void Gate::close_all() {
  guests_.clear();
  connections_->set_waiting(0);
}

// A gRPC client waits for the greeting before it calls, and looks for it only every five seconds when it has connected
// anew. So it is sent at once.
void Gate::enter(int socket, Time now) {
  os::Fd owned(socket);
  const auto peer = peer_of(socket);
  if (!peer) return;
  static const auto kGreeting = http2_greeting(kMostStreams);
  say(socket, kGreeting);
  const auto id = next_++;
  epoll_event wanted{};
  wanted.events = EPOLLIN | EPOLLRDHUP;
  wanted.data.u64 = id;
  if (::epoll_ctl(events_.get(), EPOLL_CTL_ADD, socket, &wanted) != 0) return;
  guests_.try_emplace(id, owned.release(), peer->address, rules_.message_of);
  if (const auto leaves = room_.enter(id, peer->address, now)) send_away(*leaves, now, true);
  connections_->set_waiting(guests_.size());
}

void Gate::work(Time now) {
  std::array<epoll_event, kEventsATurn> ready;
  const int count = ::epoll_wait(events_.get(), ready.data(), kEventsATurn, 0);
  for (int i = 0; i < count; ++i) read(ready[static_cast<std::size_t>(i)].data.u64, now);
  connections_->set_waiting(guests_.size());
}

void Gate::read(Id id, Time now) {
  const auto guest = guests_.find(id);
  if (guest == guests_.end()) return;
  auto& newcomer = guest->second.newcomer;
  std::array<char, kReadAtOnce> bytes;
  const auto most = std::min(bytes.size(), newcomer.room());
  const auto got = ::recv(guest->second.socket.get(), bytes.data(), most, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return forget(guest);
  switch (newcomer.take({bytes.data(), static_cast<std::size_t>(got)})) {
    case Newcomer::State::kCalls:
      return judge(guest, now);
    case Newcomer::State::kMisbehaves:
      return forget(guest);
    default:
      return;
  }
}

void Gate::judge(Guests::iterator guest, Time now) {
  const auto& call = guest->second.newcomer.call();
  const int socket = guest->second.socket.get();
  auto verdict = rules_.judge(call);
  if (verdict.party) {
    const auto whose = verdict.whose.empty() ? text_of(guest->second.from) : verdict.whose;
    auto full = connections_->admit(socket, *verdict.party, whose, now);
    if (full.empty()) {
      room_.know(guest->second.from, now);
      ::epoll_ctl(events_.get(), EPOLL_CTL_DEL, socket, nullptr);
      guest->second.socket.release();
      rules_.hand_over(socket, guest->second.newcomer.said(), *verdict.party);
      return forget(guest);
    }
    verdict.status = kResourceExhausted;
    verdict.text = std::move(full);
  }
  read_away(socket);
  say(socket, http2_refusal(call.stream, verdict.status, verdict.text));
  forget(guest);
}

void Gate::send_away(Id id, Time now, bool for_want_of_a_place) {
  const auto guest = guests_.find(id);
  if (guest == guests_.end()) return;
  const int socket = guest->second.socket.get();
  if (for_want_of_a_place) connections_->crowd().turned_away(Port::kGrpc, guest->second.from, now);
  read_away(socket);
  say(socket, http2_goodbye(for_want_of_a_place ? "too many connections without a token" : "no call in time"));
  forget(guest);
}

void Gate::forget(Guests::iterator guest) {
  room_.leave(guest->first);
  guests_.erase(guest);
}

void Gate::tidy(Time now) {
  connections_->tidy(now);
  for (const auto id : room_.overdue(now)) send_away(id, now, false);
  connections_->set_waiting(guests_.size());
}

}  // namespace net
