#include "worker/infer/text_stream.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

namespace infer {
namespace {

/// How many tokens before a new one are decoded with it. A few are enough for what a tokenizer does between tokens.
constexpr std::size_t kBefore = 6;
/// The most tokens that wait for the rest of a character.
constexpr std::size_t kMostWaiting = 3;
constexpr std::string_view kReplacement = "\uFFFD";

/// The place where the common beginning of both ends, at the border of a character.
std::size_t common(std::string_view a, std::string_view b) {
  std::size_t end = static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  while (end > 0 && end < b.size() && (static_cast<unsigned char>(b[end]) & 0xC0) == 0x80) --end;
  return end;
}

}  // namespace

TextStream::TextStream(const data::tokenizers::Tokenizer& tokenizer, std::vector<std::uint32_t> before)
    : tokenizer_(tokenizer),
      tokens_(std::move(before)),
      begin_(tokens_.size() - std::min(tokens_.size(), kBefore)),
      given_(tokens_.size()) {}

std::string TextStream::text(std::size_t end) const {
  return tokenizer_.decode(std::span(tokens_).subspan(begin_, end - begin_), /*skip_special=*/true);
}

std::string TextStream::give(std::size_t end) {
  const std::string was = text(given_), is = text(end);
  std::string piece = is.substr(common(was, is));
  given_ = end;
  begin_ = std::max(begin_, given_ - std::min(given_, kBefore));
  return piece;
}

std::string TextStream::add(std::uint32_t token) {
  tokens_.push_back(token);
  if (!text(tokens_.size()).ends_with(kReplacement)) return give(tokens_.size());
  // Only the oldest token is given up: a whole character may begin behind it.
  return tokens_.size() - given_ > kMostWaiting ? give(given_ + 1) : std::string();
}

std::string TextStream::finish() {
  return given_ == tokens_.size() ? std::string() : give(tokens_.size());
}

}  // namespace infer
