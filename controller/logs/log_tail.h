#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace logs {

/// What one read hands out at most; a line longer than this is handed out in pieces.
inline constexpr std::size_t kChunkBytes = 64 * 1024;
/// What read_last_lines hands out at most, however long the lines are.
inline constexpr std::size_t kTailBytes = 1024 * 1024;

/// A piece of a log file.
struct Piece {
  std::string text;               ///< bytes as written: not checked for UTF-8
  std::uint64_t next_offset = 0;  ///< where the next read goes on
  bool exists = false;            ///< false: no such regular file yet, or not readable
};

struct LastLines {
  std::string text;
  std::uint64_t offset = 0;  ///< end of `text` in the file: where read_from goes on
  bool exists = false;
  bool cut = false;  ///< the lines asked for were longer than max_bytes; `text` is their newest part
};

/// Reads at most `max_bytes` from `offset`, cut after the last whole line. A line longer than `max_bytes` comes in
/// pieces of that size. The unterminated rest of the file is kept back until its newline is written, unless `finished`
/// says that nobody writes any more. An empty text means: nothing (more) now. A file shorter than `offset` was
/// replaced and is read from its beginning. Memory: max_bytes, whatever the file holds.
Piece read_from(const std::string& path, std::uint64_t offset, std::size_t max_bytes = kChunkBytes,
                bool finished = false);

/// Where the last `lines` lines begin; an unterminated last line counts as one. Reads backwards from the end, so the
/// cost is that of those lines, not of the file. 0 if the file has fewer lines or does not exist. `lines` 0: the end.
std::uint64_t last_lines_offset(const std::string& path, std::uint64_t lines);

/// The last `lines` lines, whole lines only (see read_from), at most `max_bytes` of them, the newest.
LastLines read_last_lines(const std::string& path, std::uint64_t lines, std::size_t max_bytes = kTailBytes,
                          bool finished = false);

}  // namespace logs
