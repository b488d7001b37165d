#include "controller/net/http_gate.h"

#include <string>
#include <utility>

namespace net {
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
