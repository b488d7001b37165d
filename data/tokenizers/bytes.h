#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "data/tokenizers/tokenizer.h"

namespace data::tokenizers {

/// The text with U+FFFD in place of each invalid part. A part is the longest beginning of a character, or else one
/// byte, as the Unicode standard recommends (section 3.9, "maximal subpart"). Python and Rust replace the same parts.
std::string repaired(std::string_view text);

/// The vocabulary of 256 bytes and the end of a text, 256. Needs no file.
std::shared_ptr<const Tokenizer> byte_tokenizer();

}  // namespace data::tokenizers
