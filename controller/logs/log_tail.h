#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace logs {

/// The most bytes of one read. A longer line comes in pieces.
inline constexpr std::size_t kChunkBytes = 64 * 1024;
/// The most bytes of read_last_lines(), even if the lines are longer.
inline constexpr std::size_t kTailBytes = 1024 * 1024;

/// A piece of a log file.
struct Piece {
  std::string text;               ///< bytes as written: not checked for UTF-8
  std::uint64_t next_offset = 0;  ///< where the next read begins
  bool exists = false;            ///< false: there is no such regular file yet, or it cannot be read
};

struct LastLines {
  std::string text;
  std::uint64_t offset = 0;  ///< the end of `text` in the file, where read_from() goes on
  bool exists = false;
  bool cut = false;  ///< the lines were longer than max_bytes; `text` is their newest part
};

/// Reads at most `max_bytes` from `offset`, and only whole lines. A line longer than `max_bytes` comes in pieces of
/// that size. A last line without a newline is not returned, unless `finished` says that the file does not grow any
/// more. An empty text means that there is nothing to read now. A file shorter than `offset` was replaced, and is read
/// from its beginning. Uses max_bytes of memory.
Piece read_from(const std::string& path, std::uint64_t offset, std::size_t max_bytes = kChunkBytes,
                bool finished = false);

/// The offset at which the last `lines` lines begin. A last line without a newline counts. Reads backwards from the
/// end, so the cost depends on these lines, not on the file. Returns 0 if the file has fewer lines or does not exist,
/// and the end of the file if `lines` is 0.
std::uint64_t last_lines_offset(const std::string& path, std::uint64_t lines);

/// The last `lines` lines, and only whole lines (see read_from). If they are longer than `max_bytes`, their newest
/// part.
LastLines read_last_lines(const std::string& path, std::uint64_t lines, std::size_t max_bytes = kTailBytes,
                          bool finished = false);

}  // namespace logs
