#pragma once

#include <string>
#include <string_view>

namespace data::tokenizers {

/// The text with U+FFFD in place of each invalid part. A part is the longest beginning of a character, or else one
/// byte, as the Unicode standard recommends (section 3.9, "maximal subpart"). Python and Rust replace the same parts.
std::string repaired(std::string_view text);

}  // namespace data::tokenizers
