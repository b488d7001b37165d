#include "worker/infer/texts.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <span>
#include <string_view>
#include <utility>

#include "base/usage_error.h"

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

namespace {

using base::UsageError;

std::string read_all(std::istream& in, const std::string& name) {
  std::string text;
  char block[1 << 16];
  while (in.read(block, sizeof block) || in.gcount() > 0) {
    text.append(block, static_cast<std::size_t>(in.gcount()));
    if (text.size() > kMostTextBytes) throw UsageError(name + " is larger than 256 MiB; give a part of it");
  }
  if (in.bad()) throw UsageError("cannot read " + name);
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) lines.push_back(std::move(line));
    begin = end + 1;
  }
  return lines;
}

std::vector<std::string> texts_in(std::istream& in, const std::string& name, bool whole) {
  std::string text = read_all(in, name);
  auto texts = whole ? std::vector<std::string>{std::move(text)} : lines_of(text);
  if (texts.empty()) throw UsageError(name + " has no line with a text");
  return texts;
}

}  // namespace

std::vector<std::string> read_texts(const Options& options, std::istream& in, bool may_wait) {
  const bool from_in = options.file == "-" || options.texts == std::vector<std::string>{"-"};
  if (from_in || (options.file.empty() && options.texts.empty() && may_wait))
    return texts_in(in, "standard input", options.whole);
  if (!options.file.empty()) {
    std::ifstream file(options.file, std::ios::binary);
    if (!file) throw UsageError("cannot read " + options.file.native() + ": " + std::strerror(errno));
    return texts_in(file, options.file.native(), options.whole);
  }
  if (options.texts.empty()) throw UsageError("there is no text: give one as an argument, by -f FILE, or by a pipe");
  return options.texts;
}

}  // namespace infer
