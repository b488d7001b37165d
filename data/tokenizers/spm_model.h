#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace data::tokenizers {

/// The numbers are those of sentencepiece_model.proto.
enum class SpmType : std::uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};
enum class SpmAlgorithm : std::uint8_t { kUnigram = 1, kBpe = 2, kWord = 3, kCharacter = 4 };

struct SpmPiece {
  std::string text;  // UTF-8, not empty; a space is written U+2581
  float score = 0;   // finite
  SpmType type = SpmType::kNormal;
};

/// What a model file of sentencepiece says, as far as ids of texts depend on it. Defaults are those of
/// sentencepiece_model.proto.
struct SpmModel {
  std::vector<SpmPiece> pieces;  // by id; no text twice
  std::size_t unknown = 0;       // the id of the one piece of type kUnknown

  SpmAlgorithm algorithm = SpmAlgorithm::kUnigram;
  bool byte_fallback = false;  // if true, each byte has a piece of type kByte, named <0x00> to <0xFF>
  bool treat_whitespace_as_suffix = false;

  std::string charsmap;  // the rules of normalization as sentencepiece compiles them; empty if there are none
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

/// Reads the bytes of a model file: the protocol buffer message ModelProto. They come from a stranger, so all is
/// checked. Fields that ids of texts do not depend on are passed over. Memory: a few times `bytes`. Throws
/// std::runtime_error that names the byte or the piece, what is wrong with it, and what to do; the caller adds the
/// path.
SpmModel read_spm_model(std::string_view bytes);

}  // namespace data::tokenizers
