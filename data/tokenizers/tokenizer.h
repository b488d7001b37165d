#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/format/tokenizer_files.h"

namespace data::tokenizers {

/// The ids of named special tokens. A tokenizer has those that its files name.
struct Special {
  std::optional<std::int64_t> pad{}, bos{}, eos{}, unk{}, mask{}, cls{}, sep{};

  bool operator==(const Special&) const = default;
};

/// Makes ids of text, and text of ids. All functions may be called by several threads at the same time.
/// Errors are std::runtime_error with the tokenizer's path.
class Tokenizer {
 public:
  using Ids = std::vector<std::uint32_t>;

  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// `with_special`: with the tokens that the tokenizer's post-processor adds, such as BERT's [CLS] and [SEP] or T5's
  /// </s>. Each invalid part of the UTF-8 text is read as U+FFFD. The byte vocabulary keeps every byte as it is.
  virtual Ids encode(std::string_view text, bool with_special) const = 0;
  /// The ids of each text, as encode() gives them. A tokenizer.json encodes them on all cores.
  virtual std::vector<Ids> encode_batch(std::span<const std::string> texts, bool with_special) const = 0;
  /// Valid UTF-8. `skip_special`: without special tokens. An id without a piece is passed over.
  virtual std::string decode(std::span<const std::uint32_t> ids, bool skip_special) const = 0;
  /// The largest id and 1, added tokens included. At least 1.
  virtual std::int64_t vocabulary() const = 0;
  /// The piece of an id as the file writes it. Throws if no piece has the id.
  virtual std::string piece(std::uint32_t id) const = 0;

  const Special& special() const { return facts_.special; }
  /// The ids that `with_special` puts before the ids of a text, and after them.
  const Ids& prefix() const { return facts_.prefix; }
  const Ids& suffix() const { return facts_.suffix; }
  /// SHA-256 of the file that gives the ids; of kBytesIdentity for the byte vocabulary.
  const std::array<std::uint8_t, 32>& sha256() const { return facts_.sha256; }
  /// "bytes", "tokenizer.json" or "sentencepiece".
  const std::string& kind() const { return facts_.kind; }

 protected:
  struct Facts {
    std::string kind;
    std::array<std::uint8_t, 32> sha256{};
    Special special;
    Ids prefix, suffix;
  };
  explicit Tokenizer(Facts facts) : facts_(std::move(facts)) {}

 private:
  Facts facts_;
};

/// `path`: a folder with tokenizer.json, or else with a model of sentencepiece in tokenizer.model or spiece.model; one
/// of these files; or "bytes" for the byte vocabulary. A file whose name ends in .model is a model of sentencepiece.
/// tokenizer_config.json and special_tokens_map.json beside the file name the special tokens. A model of sentencepiece
/// gives the ids that transformers gives with it; spm_options() says which files that depends on. Throws
/// std::runtime_error that names the path, what is wrong, and what to do.
std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& path);

/// The vocabulary of 256 bytes and the end of a text, 256: open_tokenizer("bytes"), which needs no file.
std::shared_ptr<const Tokenizer> byte_tokenizer();

/// The text with U+FFFD in place of each invalid part. A part is the longest beginning of a character, or else one
/// byte, as the Unicode standard recommends (section 3.9, "maximal subpart"). Python and Rust replace the same parts.
std::string repaired(std::string_view text);

/// The byte vocabulary as the text of a tokenizer.json, for exports. The ids are the same: the bytes 0 to 255, and 256
/// for the end of a text, written <|end|>. Unlike "bytes", this file reads the text <|end|> as that one id, as
/// transformers does with every special token.
std::string bytes_tokenizer_json();

}  // namespace data::tokenizers
