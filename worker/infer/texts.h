#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/tokenizer.h"
#include "worker/infer/infer_options.h"

namespace infer {

/// Where results go.
struct Console {
  std::ostream& out;
  std::ostream& notes;  // for people: which model, what was left out
  bool out_is_terminal = false;
};

/// Writes text of a model to console.out. A terminal gets U+FFFD for control characters but tab and newline, because
/// they could change the terminal.
void show(const Console& console, std::string_view text);

/// Ends a command's output. Throws std::runtime_error if it could not be written.
void finish(const Console& console);

/// Makes text of tokens one by one, in pieces that are valid UTF-8 and together are the text of all tokens.
///
/// A character may be spread over several tokens, and a tokenizer may write a token in another way behind others, such
/// as a word's space. So a piece is what a token adds to the text of those before it, and it waits until its last
/// character is whole. A character has at most four bytes. So a text that never becomes one is given out as U+FFFD,
/// four tokens later.
class TextStream {
 public:
  /// `before` are the tokens that the text follows, such as a prompt. They give no text.
  TextStream(const data::tokenizers::Tokenizer& tokenizer, std::vector<std::uint32_t> before);

  /// The text that is known now and was not before; may be empty.
  std::string add(std::uint32_t token);
  /// Returns the text that is left at the end.
  std::string finish();

 private:
  std::string text(std::size_t end) const;
  std::string give(std::size_t end);

  const data::tokenizers::Tokenizer& tokenizer_;
  std::vector<std::uint32_t> tokens_;
  std::size_t begin_ = 0;  // of the tokens that are decoded, so that the next ones stand behind others
  std::size_t given_ = 0;  // tokens before this one are given out
};

/// The most bytes that a file of texts may have.
inline constexpr std::size_t kMostTextBytes = std::size_t{256} << 20;

/// The texts of the options: arguments, a file or `in`. Without arguments and a file they come from `in`, unless that
/// is a terminal and `may_wait` is false. Lines end with \n or \r\n, and empty lines of a file are left out. Throws
/// base::UsageError when there are none, when a file cannot be read, or has more than kMostTextBytes.
std::vector<std::string> read_texts(const Options& options, std::istream& in, bool may_wait);

}  // namespace infer
