#pragma once
// The text of a small JSON file that has a checksum of itself.
#include <string>
#include <string_view>

#include "fsdp/text/json.h"

namespace fsdp {

/// The member that holds the checksum.
inline constexpr const char* kOwnSum = "crc32c";

/// The text of `value`, an object without the member kOwnSum. The text begins with {"crc32c": "1a2b3c4d", where the
/// eight digits are the CRC-32C of all bytes that follow that comma, to the end of the file. It is JSON. So a changed
/// digit, which no parser can see, is found.
std::string summed_text(const Json& value);

/// Whether the text begins as summed_text() makes it. Throws CheckpointError naming the file `name` when the text
/// begins so and its checksum is another one.
bool has_own_sum(std::string_view text, const std::string& name);

}  // namespace fsdp
