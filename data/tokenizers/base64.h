#pragma once

#include <string>
#include <string_view>

namespace data::tokenizers {

/// Base64 with + and /, padded (RFC 4648, section 4).
std::string base64(std::string_view bytes);

}  // namespace data::tokenizers
