#include "controller/net/gate.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "controller/net/http2.h"

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

// Codes of gRPC.
constexpr int kResourceExhausted = 8, kUnauthenticated = 16;

constexpr std::string_view kEnd = "\r\n\r\n";

/// Every method of HTTP begins with a capital letter. A greeting of TLS does not.
bool begins_a_request(char first) {
  return first >= 'A' && first <= 'Z';
}

constexpr const char* kCrowded = "too many connections without a token";

/// The texts are our own, without quotes.
std::string answer(const char* status, const std::string& error, const std::string& remedy) {
  const auto body = R"({"error":")" + error + R"(","remedy":")" + remedy + R"("})";
  return std::string("HTTP/1.1 ") + status +
         "\r\nContent-Type: application/json; charset=utf-8\r\nCache-Control: no-store\r\nConnection: close\r\n"
         "Content-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

std::string full(const std::string& why) {
  return answer("503 Service Unavailable", why, "try again in a moment");
}

}  // namespace

Entrance::Entrance(std::shared_ptr<Connections> connections, Port port, std::chrono::milliseconds patience)
    : connections_(std::move(connections)),
      port_(port),
      events_(::epoll_create1(EPOLL_CLOEXEC)),
      room_(connections_->shares().at_the_door(port), patience, connections_->known()) {
  if (!events_) throw std::runtime_error(std::string("cannot watch connections: ") + std::strerror(errno));
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

void Entrance::tidy(Time now) {
  connections_->tidy(now);
  for (const auto id : room_.overdue(now)) send_away(guests_.find(id), Crowd::Why::kLate, now);
  tell_how_many();
}

Gate::Gate(std::shared_ptr<Connections> connections, Rules rules)
    : Entrance(std::move(connections), Port::kGrpc, kPatience), rules_(std::move(rules)) {}

// A gRPC client waits for the greeting before it calls, and looks for it only every five seconds when it has connected
// anew. So it is sent at once.
std::string Gate::greeting() const {
  static const auto kGreeting = http2_greeting(kMostStreams);
  return kGreeting;
}

void Gate::judge(Guest& guest, Time now) {
  const auto& newcomer = static_cast<const Newcomer&>(*guest.words);
  auto verdict = rules_.judge(newcomer.call());
  if (verdict.party) {
    const auto whose = verdict.whose.empty() ? text_of(guest.from) : verdict.whose;
    auto full = connections().admit(guest.socket.get(), {Port::kGrpc, *verdict.party, whose, verdict.ranks}, now);
    if (full.empty()) {
      rules_.hand_over(let_in(guest, now), newcomer, *verdict.party);
      return;
    }
    verdict.status = kResourceExhausted;
    verdict.text = std::move(full);
  }
  const auto why = verdict.status == kUnauthenticated ? Crowd::Why::kNoToken : Crowd::Why::kNoPlaceOfItsOwn;
  refuse(guest, why, http2_refusal(newcomer.call().stream, verdict.status, verdict.text), now);
}

std::string Gate::goodbye(Crowd::Why why) const {
  if (why == Crowd::Why::kBadWords) return {};
  return http2_goodbye(why == Crowd::Why::kNoPlace ? "too many connections without a token" : "no call in time");
}

FirstWords::State HttpHead::take(std::string_view bytes) {
  if (state_ == State::kCalls || state_ == State::kMisbehaves || bytes.empty()) return state_;
  // The line may have begun in the bytes before.
  const auto from = said_.size() - std::min(said_.size(), kEnd.size() - 1);
  said_ += bytes.substr(0, room());
  if (!begins_a_request(said_.front()) || said_.find(kEnd, from) != std::string::npos) {
    state_ = State::kCalls;
  } else {
    state_ = room() == 0 ? State::kMisbehaves : State::kWaits;
  }
  return state_;
}

HttpGate::HttpGate(std::shared_ptr<Connections> connections, Rules rules)
    : Entrance(std::move(connections), Port::kDashboard, rules.patience), rules_(std::move(rules)) {}

void HttpGate::judge(Guest& guest, Time now) {
  const auto& said = guest.words->said();
  const int socket = guest.socket.get();
  if (rules_.is_a_persons(said)) {
    const auto why = connections().admit(socket, {Port::kDashboard, Party::kPerson, text_of(guest.from), 0}, now);
    if (!why.empty()) return refuse(guest, Crowd::Why::kNoPlaceOfItsOwn, full(why), now);
    return rules_.hand_over(let_in(guest, now), said);
  }
  if (!connections().take_stranger(socket, now)) return refuse(guest, Crowd::Why::kNoPlace, full(kCrowded), now);
  rules_.hand_over(hand_over(guest), said);
}

std::string HttpGate::goodbye(Crowd::Why why) const {
  switch (why) {
    case Crowd::Why::kNoPlace:
      return full(kCrowded);
    case Crowd::Why::kBadWords:
      return answer("431 Request Header Fields Too Large", "the request's headers are too large",
                    "send at most " + std::to_string(rules_.most_bytes / 1024) + " KiB of them");
    default:
      return {};
  }
}

}  // namespace net
