#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "data/chess/player.h"

namespace data::prepare {

/// The parts that each record of a source has.
enum class RecordKind : std::uint8_t { kText, kPair, kLabelled };

/// One example, before it becomes tokens. The views are valid during the call of the sink alone.
struct TextRecord {
  std::string_view text;         // UTF-8 by intent; packages and manual pages may hold other bytes
  std::string_view target = {};  // kPair
  std::int32_t label = -1;       // kLabelled: a number of TextSource::labels
};

/// Receives one record.
using RecordSink = std::function<void(const TextRecord& record)>;

/// Texts in numbered parts. A part is always the same records in the same order.
struct TextSource {
  RecordKind kind = RecordKind::kText;
  std::string description;               ///< kind, options and, for files, a fingerprint; equal ones mean equal records
  std::string name;                      ///< for people: "the manual pages of this machine"
  std::vector<std::string> labels = {};  ///< kLabelled: names by number
  std::int64_t parts = 0;                ///< at least 1; a part may be without records
  /// Passes the records of part 0 to parts - 1 to the sink. Several threads may read. Throws std::runtime_error naming
  /// file, place, finding and remedy, and std::out_of_range for another part.
  std::function<void(std::int64_t part, const RecordSink& sink)> read = {};
};

/// Completes a source of so many items, such as pages: with parts of `items_a_part`, one at least, and a read() that
/// calls `tell` for each item of a part, counted from 0, and throws std::out_of_range naming a part that is not there.
TextSource in_parts(TextSource source, std::int64_t items, std::int64_t items_a_part,
                    std::function<void(std::int64_t item, const RecordSink& sink)> tell);

/// Throws std::runtime_error "WHAT = VALUE: want LEAST to MOST" for a value outside.
void check_range(std::string_view what, std::int64_t value, std::int64_t least, std::int64_t most);

/// `text` with each run of spaces, tabs and line ends as one space, and none at both ends.
std::string one_line(std::string_view text);

/// The beginning of `text`, at most `bytes` long, without a part of a UTF-8 character at its end.
std::string_view cut_text(std::string_view text, std::size_t bytes);

/// A regular file, read in pieces. Not thread-safe; each thread opens its own.
class InputFile {
 public:
  /// Throws std::runtime_error "PATH: finding; remedy" for a file that is not there, is forbidden or is not a regular
  /// one, and std::system_error where the system refuses for another reason.
  explicit InputFile(const std::filesystem::path& path);

  std::int64_t bytes() const { return bytes_; }
  /// Changes whenever the content may have changed: size and time of the last change.
  const std::string& state() const { return state_; }

  /// Reads from `offset` on, as much as `out` holds; fewer bytes at the end of the file. Throws std::system_error.
  std::size_t read(std::int64_t offset, std::span<char> out) const;

  /// The whole file. Throws std::runtime_error if it has more than `most` bytes.
  std::string read_all(std::int64_t most) const;

 private:
  std::filesystem::path path_;
  base::Fd fd_;
  std::int64_t bytes_ = 0;
  std::string state_;
};

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

/// Texts that were written for this project, for machines without such files: those below a folder, or of one file, of
/// data/prepare/text/fixture, in the order of their names and as they were when this program was built. "packages.txt"
/// has sixty packages of six sections as Debian control paragraphs, "pages/" twenty manual pages as roff, and
/// "documents/" essays.
std::vector<std::string_view> fixture_texts(std::string_view path);

struct TextFilesOptions {
  /// Files, read in this order, and folders: the files below one, in the order of their paths.
  std::vector<std::filesystem::path> paths = {};
  std::int64_t most_bytes = 0;                       // of all files; the files after it are left out. 0: all
  std::int64_t part_bytes = std::int64_t{64} << 20;  // 1 to 2^40
};

/// Plain text files, UTF-8 by intent. A file is a record. A file over 1 MiB is several records of about 1 MiB, cut
/// after a line end, so that a tokenizer never sees a text of gigabytes.
///
/// Left out below a folder: hidden files and folders, links, files that cannot be read. Left out everywhere: empty
/// files and files with a NUL byte in their first 8 KiB. At most 1,000,000 files.
///
/// Throws std::runtime_error naming the path and the remedy: no path, a path that is not there, no file at all.
TextSource open_text_files(const TextFilesOptions& options);

/// The text built into this program: a few essays on training, 1 part. most_bytes: as in TextFilesOptions.
TextSource open_built_in_text(std::int64_t most_bytes = 0);

struct JsonlOptions {
  std::vector<std::filesystem::path> files = {};  // read in this order
  RecordKind kind = RecordKind::kText;
  std::string text_key = "text";      // of pairs: the source
  std::string target_key = "target";  // kPair
  std::string label_key = "label";    // kLabelled
  /// Names of labels in the order of their numbers, at most 65,536. Empty: all labels of the files, whole numbers by
  /// value or else by bytes; open_jsonl() then reads every file once.
  std::vector<std::string> labels = {};
  std::int64_t part_bytes = std::int64_t{64} << 20;  // 1 to 2^40
  /// Lines that start after so many bytes of all files are left out. 0: none. Labels are looked for in all lines.
  std::int64_t most_bytes = 0;
  /// Called for each line that cannot be a record, whatever is wrong with it; the line is then left out. `text` gives
  /// the error, at the cost of a look through the file. Several threads may call it. Empty: such a line is an error.
  std::function<void(const std::function<std::string()>& text)> on_damaged = {};
};

/// JSON lines: one JSON object a line, UTF-8. Each is a record. A key may lead into objects: "translation.en" is the
/// key of this name or, without one, "en" in the object "translation". Texts are JSON strings; a label is a string, a
/// whole number or true or false, and 1.0 is the label 1. Other keys are ignored; their values may be NaN, Infinity and
/// -Infinity, as Python and pandas write them. Lines of white space are left out.
///
/// Parts are ranges of bytes of one file: a line belongs to the part in which it starts. A line has at most 64 MiB.
///
/// Throws std::runtime_error "FILE:LINE: finding; remedy": a line that is no JSON object or too long, a key that is
/// missing or of another type, a label that options.labels lacks, a packed file, no file at all. With on_damaged only
/// the last two.
TextSource open_jsonl(const JsonlOptions& options);

struct ChessGamesOptions {
  std::int64_t games = 10'000;  // 1 to 1,000,000,000
  std::uint64_t seed = 0;
  chess::PlayerOptions player = {};
};

/// Games of chess::play(), a movetext a record: "1. e4 e5 2. Nf3 ... 27. Qh7# 1-0". A game is a pure function of the
/// options' seed and player and of its number, on every machine. A part has 10,000 games. Throws std::runtime_error
/// naming an option outside its range.
TextSource open_chess_games(const ChessGamesOptions& options = {});

/// Game `number` of them, from 0.
std::string chess_game(const ChessGamesOptions& options, std::int64_t number);

}  // namespace data::prepare
