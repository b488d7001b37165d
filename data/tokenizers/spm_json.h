#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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

/// The facts that a model file of sentencepiece tells, as far as ids of texts depend on it. Defaults are those of
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

/// How a model of sentencepiece is used.
/// kPlain: as sentencepiece itself does, with nothing around a text.
/// kT5: as transformers' T5TokenizerFast, with <extra_id_99> to <extra_id_0> after the pieces and </s> after a text.
/// kLlama: as transformers' LlamaTokenizerFast and CodeLlamaTokenizerFast, with <s> before a text.
enum class SpmStyle { kPlain, kT5, kLlama };

/// A token that is found in a text before the model sees the text. Members as in tokenizer.json.
struct AddedToken {
  std::string text{};
  bool is_special = true;  // decoding can skip it
  bool single_word = false;
  bool strips_left = false;  // takes the spaces before it
  bool strips_right = false;
  bool is_normalized = false;        // is looked for in the normalized text
  std::optional<std::int64_t> id{};  // what a file says that its id is
};

/// Defaults are those of transformers 4.57 for a folder that says nothing.
struct SpmOptions {
  SpmStyle style = SpmStyle::kPlain;
  // kT5 and kLlama
  bool legacy = true;            // a space before each part between added tokens, not only before the first
  bool add_prefix_space = true;  // false: no such space at all
  // kLlama
  std::optional<std::string> bos{}, eos{};  // put before and after a text; empty for none
  // kT5
  std::int64_t extra_ids = 100;
  /// Beside the pieces of the types CONTROL, USER_DEFINED and UNKNOWN, which are always added tokens. Those that are no
  /// pieces get the next ids.
  std::vector<AddedToken> added{};
};

/// The text of a tokenizer.json that gives the same ids. Corners remain where sentencepiece gives others. transformers'
/// fast tokenizers differ from it in the same ones:
/// - A text may contain added tokens, such as <s>. sentencepiece reads their letters.
/// - A charsmap is applied to characters together with their marks if they have at most 5 bytes, and to single code
///   points otherwise. sentencepiece takes the longest match.
/// - Sums of scores have 64 bits instead of 32, so another one of two nearly equal cuts can win.
/// Throws std::runtime_error, without a path, for a model that no tokenizer.json can express.
std::string tokenizer_json_of(const SpmModel& model, const SpmOptions& options);

/// Base64 with + and /, padded (RFC 4648, section 4).
std::string base64(std::string_view bytes);

/// The merges of a BPE model, most urgent first. sentencepiece stores scores of pieces instead. Every cut of a piece
/// into two pieces is a merge; merges are sorted by the score of the whole, as transformers' generate_merges() sorts
/// them. The views point into `model`.
/// kPlain leaves out control, unknown and byte pieces, because sentencepiece never finds them in a text.
/// kLlama: the scores of the first three pieces are taken as 0.
std::vector<std::pair<std::string_view, std::string_view>> merges_of(const SpmModel& model, SpmStyle style);

/// How transformers 4.57 would use this model file, which `model` was read from. The files beside it say so:
/// - the style: "tokenizer_class" of tokenizer_config.json or config.json, else "model_type" of config.json. Without
///   them a model that has the ids and settings of T5's or Llama's own has their style, and any other one is plain;
/// - added tokens: "added_tokens_decoder" and the named tokens of tokenizer_config.json; without the former also
///   special_tokens_map.json and added_tokens.json;
/// - "legacy", "add_prefix_space", "add_bos_token", "add_eos_token" and "extra_ids" of tokenizer_config.json.
/// Throws std::runtime_error that names the file: one that can't be read, and a class with rules of its own.
SpmOptions spm_options(const std::filesystem::path& file, const SpmModel& model);

}  // namespace data::tokenizers
