#pragma once

#include <nlohmann/json.hpp>

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "data/tokenizers/tokenizer.h"

namespace data::tokenizers {

// A tokenizer.json, and what the files beside it say.

/// A JSON object and where it was read. Without the file it has no members.
struct JsonObject {
  std::filesystem::path path;
  nlohmann::json members = nlohmann::json::object();

  /// Throws std::runtime_error: PATH: `key` is a TYPE, want WANTED.
  [[noreturn]] void refuse(const std::string& key, const nlohmann::json& value, const char* wanted) const;
  /// nullopt if the member is missing or null. Throws std::runtime_error that names the file if it is no text.
  std::optional<std::string> text(const char* key) const;
  /// Returns a member that is true or false in the same way.
  bool flag(const char* key, bool usual) const;
};

/// A member that is neither absent nor null, or a null pointer.
const nlohmann::json* given(const nlohmann::json& object, const char* name);

/// Throws std::runtime_error that names the path if the file can't be read or holds no JSON object.
JsonObject read_object(const std::filesystem::path& path);

/// The text of a token: a text, or the "content" of an object. Null means that the tokenizer has none.
/// `key` names the token in an error.
std::optional<std::string> token_text(const JsonObject& object, const std::string& key, const nlohmann::json& value);

/// A tokenizer.json and where it comes from.
struct JsonSource {
  std::filesystem::path file;             // that the user named; errors begin with it
  std::string kind;                       // "tokenizer.json", or what the text was made from
  std::array<std::uint8_t, 32> sha256{};  // of the file
  std::string text;                       // of the tokenizer.json
};

/// Opens a tokenizer.json by the crate. The files beside it name special tokens. In a build without the crate it throws
/// std::runtime_error that says so.
std::shared_ptr<const Tokenizer> open_json(const JsonSource& source);

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

// The members of the files beside a tokenizer.json. transformers applies some of them over the file, so ids would
// differ from the file's own. Each member is read, known to change no id, or compared with what the tokenizer.json does
// and refused where the two differ. docs/model-files.md says why.

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
/// others by itself (spm_options() in spm_json.h).
void check_known_members(const std::filesystem::path& folder);

}  // namespace data::tokenizers
