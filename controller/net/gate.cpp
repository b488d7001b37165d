#include "controller/net/gate.h"

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

}  // namespace net
