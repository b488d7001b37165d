#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "data/tokenizers/tokenizer.h"

namespace data::tokenizers {

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

}  // namespace data::tokenizers
