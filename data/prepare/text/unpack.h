#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace data::prepare {

/// Unpacks a gzip file (RFC 1952) with all its members by zlib. Bytes after them that begin no member are left out.
/// Output beyond `max_bytes` is cut off without an error. The checksum of a member that is not cut is verified. Throws
/// std::runtime_error describing the damage. Hostile input takes at most time linear in its size and `max_bytes` of
/// memory.
std::string gunzip(std::string_view bytes, std::size_t max_bytes);

/// True if the bytes begin as an LZ4 frame.
bool is_lz4(std::string_view bytes);

/// Unpacks an LZ4 frame, in which apt may keep its lists, by liblz4. Reads the first frame alone. Frames that need a
/// dictionary are refused. Throws std::runtime_error describing the damage, or more than `max_bytes` of output. Time is
/// linear in input and output on any input.
std::string unlz4(std::string_view bytes, std::size_t max_bytes);

}  // namespace data::prepare
