#pragma once

#include <cstddef>
#include <string_view>

namespace core {

/// Bytes of the UTF-8 character that begins the text; 0: it begins none.
std::size_t character_bytes(std::string_view text);
/// What a message can carry.
bool is_utf8(std::string_view text);

}  // namespace core
