#include "data/tokenizers/tokenizer.h"

#include <nlohmann/json.hpp>

#include <cstddef>
#include <stdexcept>

#include "base/checksum.h"

namespace data::tokenizers {
namespace {

struct Part {
  std::size_t bytes;
  bool is_valid;
};

/// The character at the front of the text, or the invalid part there. The text is not empty. The limits of the second
/// byte are those of table 3-7 in the Unicode standard.
Part first_part(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return {1, true};
  if (first < 0xC2 || first > 0xF4) return {1, false};
  const std::size_t size = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < size; ++i) {
    if (i == text.size()) return {i, false};
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < low || byte > high) return {i, false};
    low = 0x80;
    high = 0xBF;
  }
  return {size, true};
}

}  // namespace

std::string repaired(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const auto part = first_part(text);
    result += part.is_valid ? text.substr(0, part.bytes) : std::string_view("\xEF\xBF\xBD");
    text.remove_prefix(part.bytes);
  }
  return result;
}

namespace {

constexpr std::uint32_t kEnd = 256;
constexpr const char* kEndPiece = "<|end|>";

/// The character by which byte-level tokenizers write a byte: itself if it can be seen, else the next one from U+0100
/// on. The table of GPT-2, which the crate's ByteLevel shares.
std::array<std::string, 256> characters_of_bytes() {
  std::array<std::string, 256> result;
  unsigned next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool is_seen = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    const unsigned character = is_seen ? byte : next++;
    if (character < 0x80) {
      result[byte] = static_cast<char>(character);
    } else {
      result[byte] = {static_cast<char>(0xC0 | character >> 6), static_cast<char>(0x80 | (character & 0x3F))};
    }
  }
  return result;
}

class Bytes final : public Tokenizer {
 public:
  Bytes() : Tokenizer(facts()) {}

  Ids encode(std::string_view text, bool) const override {
    Ids ids(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) ids[i] = static_cast<unsigned char>(text[i]);
    return ids;
  }

  std::vector<Ids> encode_batch(std::span<const std::string> texts, bool with_special) const override {
    std::vector<Ids> result;
    result.reserve(texts.size());
    for (const auto& text : texts) result.push_back(encode(text, with_special));
    return result;
  }

  std::string decode(std::span<const std::uint32_t> ids, bool skip_special) const override {
    std::string text;
    text.reserve(ids.size());
    for (const auto id : ids) {
      if (id < kEnd) text += static_cast<char>(id);
      if (id == kEnd && !skip_special) text += kEndPiece;
    }
    return repaired(text);
  }

  std::int64_t vocabulary() const override { return kEnd + 1; }

  std::string piece(std::uint32_t id) const override {
    if (id > kEnd) throw std::runtime_error("tokenizer bytes: no piece has the id " + std::to_string(id));
    return id == kEnd ? kEndPiece : characters_of_bytes()[id];
  }

 private:
  static Facts facts() {
    Facts facts;
    facts.kind = "bytes";
    facts.sha256 = base::sha256(format::kBytesIdentity);
    facts.special.eos = kEnd;
    return facts;
  }
};

}  // namespace

std::shared_ptr<const Tokenizer> byte_tokenizer() {
  return std::make_shared<Bytes>();
}

std::string bytes_tokenizer_json() {
  using Json = nlohmann::ordered_json;
  Json vocabulary = Json::object();
  const auto characters = characters_of_bytes();
  for (std::size_t byte = 0; byte < characters.size(); ++byte) vocabulary[characters[byte]] = byte;
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
  const Json end = {{"id", kEnd},      {"content", kEndPiece}, {"single_word", false}, {"lstrip", false},
                    {"rstrip", false}, {"normalized", false},  {"special", true}};
  const Json file = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", Json::array({end})},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", byte_level},
                     {"post_processor", nullptr},
                     {"decoder", byte_level},
                     {"model",
                      {{"type", "BPE"},
                       {"dropout", nullptr},
                       {"unk_token", nullptr},
                       {"continuing_subword_prefix", nullptr},
                       {"end_of_word_suffix", nullptr},
                       {"fuse_unk", false},
                       {"byte_fallback", false},
                       {"vocab", vocabulary},
                       {"merges", Json::array()}}}};
  return file.dump(1) + "\n";
}

}  // namespace data::tokenizers
