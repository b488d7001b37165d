#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace worker {

/// Unpacks a gzip file (RFC 1952, all its members). At most `max_bytes` come out: what is beyond is cut off, which is
/// no error. Throws std::runtime_error that says what is wrong with the bytes; hostile input costs no more than time
/// linear in its size and `max_bytes` of memory. The checksum of an uncut member is verified.
std::string gunzip(std::string_view bytes, std::size_t max_bytes);

}  // namespace worker
