#include "worker/infer/texts.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <span>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "base/usage_error.h"

namespace infer {
namespace {

/// Bytes of the control character at the beginning of valid UTF-8; 0: there is none. C1 controls have two bytes.
std::size_t control_bytes(std::string_view text) {
  const auto byte = static_cast<unsigned char>(text[0]);
  if (byte == '\t' || byte == '\n') return 0;
  if (byte < 0x20 || byte == 0x7F) return 1;
  const bool is_c1 = byte == 0xC2 && text.size() > 1 && static_cast<unsigned char>(text[1]) < 0xA0;
  return is_c1 ? 2 : 0;
}

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

std::vector<std::string> lines_of(std::string text) {
  std::vector<std::string> lines;
  std::istringstream in(std::move(text));
  for (std::string line; std::getline(in, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<std::string> texts_in(std::istream& in, const std::string& name, bool whole) {
  std::string text = read_all(in, name);
  auto texts = whole ? std::vector<std::string>{std::move(text)} : lines_of(std::move(text));
  if (texts.empty()) throw UsageError(name + " has no line with a text");
  return texts;
}

}  // namespace

void show(const Console& console, std::string_view text) {
  if (!console.out_is_terminal) {
    console.out << text;
    return;
  }
  std::string safe;
  while (!text.empty()) {
    const std::size_t control = control_bytes(text);
    if (control > 0) {
      safe += "\uFFFD";
    } else {
      safe += text[0];
    }
    text.remove_prefix(std::max<std::size_t>(1, control));
  }
  console.out << safe << std::flush;
}

void finish(const Console& console) {
  console.out << std::flush;
  if (!console.out) throw std::runtime_error("cannot write the results; is the disk full?");
}

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
