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
