#include "controller/net/entrance.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace net {
namespace {

constexpr int kEventsATurn = 256;
constexpr std::size_t kReadAtOnce = 8 * 1024;
/// Bytes that a refused client has sent besides are read away, at most so many: closing over unread bytes resets the
/// connection, and the answer may be lost.
constexpr int kMostReadAway = 64 * 1024;

/// The kernel's buffer of a new connection is empty, so these few bytes fit.
void say(int socket, const std::string& text) {
  if (text.empty()) return;
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

Entrance::Entrance(std::shared_ptr<Connections> connections, Port port, std::chrono::milliseconds patience)
    : connections_(std::move(connections)),
      port_(port),
      events_(::epoll_create1(EPOLL_CLOEXEC)),
      room_(connections_->shares().at_the_door(port), patience, connections_->known()) {
  if (!events_) throw std::runtime_error(std::string("cannot watch connections: ") + std::strerror(errno));
}

void Entrance::close_all() {
  guests_.clear();
  connections_->set_waiting(port_, 0);
}

void Entrance::enter(int socket, Time now) {
  base::Fd owned(socket);
  const auto peer = peer_of(socket);
  if (!peer) return;
  say(socket, greeting());
  const auto id = next_++;
  epoll_event wanted{};
  wanted.events = EPOLLIN | EPOLLRDHUP;
  wanted.data.u64 = id;
  if (::epoll_ctl(events_.get(), EPOLL_CTL_ADD, socket, &wanted) != 0) return;
  guests_.try_emplace(id, Guest{std::move(owned), peer->address, listen()});
  // Who has said everything already needs no place, and nobody has to leave for it.
  if (room_.size() >= room_.places()) {
    read(id, now);
    if (!guests_.contains(id)) return;
  }
  if (const auto leaves = room_.enter(id, peer->address, now)) {
    send_away(guests_.find(*leaves), Crowd::Why::kNoPlace, now);
  }
  tell_how_many();
}

void Entrance::work(Time now) {
  std::array<epoll_event, kEventsATurn> ready;
  const int count = ::epoll_wait(events_.get(), ready.data(), kEventsATurn, 0);
  for (int i = 0; i < count; ++i) read(ready[static_cast<std::size_t>(i)].data.u64, now);
  tell_how_many();
}

void Entrance::read(Id id, Time now) {
  const auto guest = guests_.find(id);
  if (guest == guests_.end()) return;
  auto& words = *guest->second.words;
  std::array<char, kReadAtOnce> bytes;
  const auto most = std::min(bytes.size(), words.room());
  const auto got = ::recv(guest->second.socket.get(), bytes.data(), most, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return forget(guest);
  switch (words.take({bytes.data(), static_cast<std::size_t>(got)})) {
    case FirstWords::State::kCalls:
      judge(guest->second, now);
      return forget(guest);
    case FirstWords::State::kMisbehaves:
      return send_away(guest, Crowd::Why::kBadWords, now);
    default:
      return;
  }
}

int Entrance::let_in(Guest& guest, Time now) {
  room_.know(guest.from, now);
  return hand_over(guest);
}

int Entrance::hand_over(Guest& guest) {
  ::epoll_ctl(events_.get(), EPOLL_CTL_DEL, guest.socket.get(), nullptr);
  return guest.socket.release();
}

void Entrance::refuse(Guest& guest, Crowd::Why why, const std::string& answer, Time now) {
  connections_->crowd().turned_away(port_, guest.from, why, now);
  read_away(guest.socket.get());
  say(guest.socket.get(), answer);
}

void Entrance::send_away(Guests::iterator guest, Crowd::Why why, Time now) {
  if (guest == guests_.end()) return;
  refuse(guest->second, why, goodbye(why), now);
  forget(guest);
}

void Entrance::forget(Guests::iterator guest) {
  room_.leave(guest->first);
  guests_.erase(guest);
}

void Entrance::tell_how_many() {
  connections_->set_waiting(port_, guests_.size());
}

void Entrance::tidy(Time now) {
  connections_->tidy(now);
  for (const auto id : room_.overdue(now)) send_away(guests_.find(id), Crowd::Why::kLate, now);
  tell_how_many();
}

}  // namespace net
