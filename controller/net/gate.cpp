#include "controller/net/gate.h"

#include <algorithm>
#include <string>
#include <utility>

#include "controller/net/http2_answers.h"

namespace net {
namespace {

// Codes of gRPC.
constexpr int kResourceExhausted = 8, kUnauthenticated = 16;

}  // namespace

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

namespace {

constexpr std::string_view kEnd = "\r\n\r\n";

/// Every method of HTTP begins with a capital letter. A greeting of TLS does not.
bool begins_a_request(char first) {
  return first >= 'A' && first <= 'Z';
}

}  // namespace

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

namespace {

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
