#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "controller/net/first_words.h"

namespace net {

/// What one connection to the dashboard's port has said before its first request was judged: HTTP/1 up to the empty
/// line that ends a request's headers. It is kCalls once the server can answer: the line is there, or the first byte
/// begins no request, which the server refuses. It is kMisbehaves when `most_bytes` have come without that line.
class HttpHead final : public FirstWords {
 public:
  explicit HttpHead(std::size_t most_bytes) : most_(most_bytes) {}

  State take(std::string_view bytes) override;
  std::size_t room() const override { return most_ - said_.size(); }
  const std::string& said() const override { return said_; }

 private:
  const std::size_t most_;
  State state_ = State::kSilent;
  std::string said_;
};

}  // namespace net
