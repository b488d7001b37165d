#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizers/spm_model.h"

namespace data::tokenizers {

/// Base64 with + and /, padded (RFC 4648, section 4).
std::string base64(std::string_view bytes);

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

/// The options that transformers takes for a folder of this style that has no tokenizer_config.json.
SpmOptions usual_options(SpmStyle style);

/// The text of a tokenizer.json that gives the same ids. Corners remain where sentencepiece gives others. transformers'
/// fast tokenizers differ from it in the same ones:
/// - A text may contain added tokens, such as <s>. sentencepiece reads their letters.
/// - A charsmap is applied to characters together with their marks if they have at most 5 bytes, and to single code
///   points otherwise. sentencepiece takes the longest match.
/// - Sums of scores have 64 bits instead of 32, so another one of two nearly equal cuts can win.
/// Throws std::runtime_error, without a path, for a model that no tokenizer.json
/// can express.
std::string tokenizer_json_of(const SpmModel& model, const SpmOptions& options);

/// The text of such a tokenizer.json from the bytes of a model file, with the usual options of the style.
std::string tokenizer_json_of(std::string_view model_proto, SpmStyle style);

/// The merges of a BPE model, most urgent first. sentencepiece stores scores of pieces instead. Every cut of a piece
/// into two pieces is a merge; merges are sorted by the score of the whole, as transformers' generate_merges() sorts
/// them. The views point into `model`.
/// kPlain leaves out control, unknown and byte pieces, because sentencepiece never finds them in a text.
/// kLlama: the scores of the first three pieces are taken as 0.
std::vector<std::pair<std::string_view, std::string_view>> merges_of(const SpmModel& model, SpmStyle style);

}  // namespace data::tokenizers
