#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace data::prepare {

/// Whether the bytes begin as an LZ4 frame.
bool is_lz4(std::string_view bytes);

/// Unpacks an LZ4 frame (lz4_Frame_format.md 1.6), in which apt may keep its lists. Reads the first frame alone. Its
/// checksums are not verified; frames that need a dictionary are refused. Throws std::runtime_error describing the
/// damage, or more than `max_bytes` of output. Time is linear in input and output on any input.
std::string unlz4(std::string_view bytes, std::size_t max_bytes);

}  // namespace data::prepare
