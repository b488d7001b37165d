#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/spm_json.h"

/// Writes model files of sentencepiece: the protocol buffer message ModelProto.
namespace data::tokenizers::test {

inline const std::string kSpace = "\xE2\x96\x81";  // U+2581

inline std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7F) | 0x80);
  return out + static_cast<char>(value);
}

inline std::string number_field(std::uint32_t number, std::uint64_t value) {
  return varint(number << 3 | 0) + varint(value);
}

inline std::string bytes_field(std::uint32_t number, std::string_view bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + std::string(bytes);
}

inline std::string float_field(std::uint32_t number, float value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);  // little-endian, as all machines that muster builds for
  return varint(number << 3 | 5) + bytes;
}

inline std::string proto_of(const SpmPiece& piece) {
  std::string out = bytes_field(1, piece.text) + float_field(2, piece.score);
  // sentencepiece leaves the usual type out.
  if (piece.type != SpmType::kNormal) out += number_field(3, static_cast<std::uint64_t>(piece.type));
  return bytes_field(1, out);
}

/// The file of this model, in the order in which sentencepiece writes it.
inline std::string proto_of(const SpmModel& model) {
  std::string out;
  for (const auto& piece : model.pieces) out += proto_of(piece);
  std::string trainer = bytes_field(1, "corpus.txt") + number_field(3, static_cast<std::uint64_t>(model.algorithm));
  trainer += number_field(24, model.treat_whitespace_as_suffix) + number_field(35, model.byte_fallback);
  trainer += number_field(43, ~std::uint64_t{0}) + bytes_field(45, "<unk>");  // pad_id = -1
  std::string normalizer = bytes_field(1, "mine") + bytes_field(2, model.charsmap);
  normalizer += number_field(3, model.add_dummy_prefix) + number_field(4, model.remove_extra_whitespaces);
  normalizer += number_field(5, model.escape_whitespaces);
  return out + bytes_field(2, trainer) + bytes_field(3, normalizer);
}

/// Pieces 0 to 2 are <unk>, <s> and </s>; then come these, with scores that fall from -1 on.
inline SpmModel small_model(SpmAlgorithm algorithm, const std::vector<std::string>& pieces) {
  SpmModel model;
  model.algorithm = algorithm;
  model.pieces = {{"<unk>", 0, SpmType::kUnknown}, {"<s>", 0, SpmType::kControl}, {"</s>", 0, SpmType::kControl}};
  for (const auto& text : pieces) {
    model.pieces.push_back({text, -static_cast<float>(model.pieces.size() - 2), SpmType::kNormal});
  }
  return model;
}

/// A model with the settings of Llama's own: BPE, the 256 bytes from id 3 on, and then these pieces.
inline SpmModel small_llama(const std::vector<std::string>& pieces) {
  SpmModel model = small_model(SpmAlgorithm::kBpe, {});
  model.byte_fallback = true;
  model.remove_extra_whitespaces = false;
  constexpr const char* kDigits = "0123456789ABCDEF";
  for (unsigned byte = 0; byte < 256; ++byte) {
    model.pieces.push_back({std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">", 0, SpmType::kByte});
  }
  float score = 0;
  for (const auto& text : pieces) model.pieces.push_back({text, score -= 1, SpmType::kNormal});
  return model;
}

/// A model with the settings of T5's own, but for its charsmap: <pad>, </s>, <unk>, and then these pieces.
inline SpmModel small_t5(const std::vector<std::string>& pieces) {
  SpmModel model = small_model(SpmAlgorithm::kUnigram, pieces);
  model.pieces[0] = {"<pad>", 0, SpmType::kControl};
  model.pieces[1] = {"</s>", 0, SpmType::kControl};
  model.pieces[2] = {"<unk>", 0, SpmType::kUnknown};
  model.unknown = 2;
  return model;
}

/// The options that transformers takes for a folder of this style that has no tokenizer_config.json.
inline SpmOptions usual_options(SpmStyle style) {
  SpmOptions options{.style = style};
  if (style == SpmStyle::kLlama) {
    options.bos = "<s>";
    options.added = {{.text = "<s>"}, {.text = "</s>"}, {.text = "<unk>"}};
  } else if (style == SpmStyle::kT5) {
    options.added = {{.text = "</s>"}, {.text = "<unk>"}, {.text = "<pad>"}};
  }
  return options;
}

}  // namespace data::tokenizers::test
