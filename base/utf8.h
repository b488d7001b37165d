#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace base {

/// The length in bytes of the UTF-8 character at the front of the text; 0: there is no valid character. The text must
/// not be empty.
std::size_t character_bytes(std::string_view text);
/// True if the text is valid UTF-8. A protobuf message with any other text cannot be sent.
bool is_utf8(std::string_view text);
/// `text` with every byte that is not valid UTF-8 replaced by '?'.
std::string valid_utf8(std::string_view text);

}  // namespace base
