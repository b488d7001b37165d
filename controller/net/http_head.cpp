#include "controller/net/http_head.h"

#include <algorithm>

namespace net {
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

}  // namespace net
