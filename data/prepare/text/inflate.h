#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace data::prepare {

/// Unpacks a gzip file (RFC 1952) with all its members. Output beyond `max_bytes` is cut off without an error. The
/// checksum of a member that is not cut is verified. Throws std::runtime_error describing the damage. Hostile input
/// takes at most time linear in its size and `max_bytes` of memory.
std::string gunzip(std::string_view bytes, std::size_t max_bytes);

}  // namespace data::prepare
