#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "data/tokenizers/tokenizer.h"

namespace data::tokenizers {

struct Piece {
  std::uint32_t id = 0;
  bool is_special = false;  // an added token that decoding can skip
};
using FindPiece = std::function<std::optional<Piece>(std::string_view)>;

/// The named special tokens of a folder, read as transformers 4.57 reads them: from tokenizer_config.json, and from
/// special_tokens_map.json where the former has no added_tokens_decoder. A token that neither file names is looked for
/// under its usual names ([PAD], <pad>, …) among the special pieces, because older folders leave it to a class in
/// Python. Throws std::runtime_error that names the file: one that is not readable, and a token that is no piece.
Special special_tokens(const std::filesystem::path& folder, const FindPiece& find);

}  // namespace data::tokenizers

// The members of the files beside a tokenizer.json. transformers applies some of them over the file, so ids would
// differ from the file's own. Each member is read, known to change no id, or compared with what the tokenizer.json does
// and refused where the two differ. docs/model-files.md says why.
namespace data::tokenizers {

/// The facts about what a tokenizer.json does by itself.
struct JsonTokenizerFacts {
  std::string_view text;  // of the file
  Special special;
  Tokenizer::Ids prefix, suffix;
};

/// Compares tokenizer_config.json and special_tokens_map.json of a folder with its tokenizer.json, as transformers 4.57
/// and 5 apply them: tokens around a text (add_bos_token, add_eos_token), added tokens and their flags, BERT's
/// lower-casing, a space before a text, splitting of special tokens. Throws std::runtime_error naming file, member,
/// value and remedy for what differs, and for a member that is not known. A folder without the files has nothing to
/// compare.
void check_tokenizer_config(const std::filesystem::path& folder, const JsonTokenizerFacts& facts,
                            const FindPiece& find);

/// Refuses members of tokenizer_config.json that are not known, also beside a model of sentencepiece, which reads the
/// others by itself (spm_options.h).
void check_known_members(const std::filesystem::path& folder);

}  // namespace data::tokenizers
