#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
  std::string description;          ///< kind, options and, for files, a fingerprint; equal ones mean equal records
  std::string name;                 ///< for people: "the manual pages of this machine"
  std::vector<std::string> labels;  ///< kLabelled: names by number
  std::int64_t parts = 0;           ///< at least 1; a part may be without records
  /// Passes the records of part 0 to parts - 1 to the sink. Several threads may read. Throws std::runtime_error naming
  /// file, place, finding and remedy, and std::out_of_range for another part.
  std::function<void(std::int64_t part, const RecordSink& sink)> read;
};

/// Items [first, last) of a part when `items` items are cut into parts of `items_a_part`. Throws std::out_of_range
/// naming the part if there is none of this number.
struct ItemRange {
  std::int64_t first, last;
};
ItemRange items_of_part(std::int64_t part, std::int64_t items, std::int64_t items_a_part);

/// Parts of so many items: at least one.
constexpr std::int64_t parts_of(std::int64_t items, std::int64_t items_a_part) {
  return items <= items_a_part ? 1 : (items - 1) / items_a_part + 1;
}

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
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::int64_t bytes() const { return bytes_; }
  /// Changes whenever the content may have changed: size and time of the last change.
  const std::string& state() const { return state_; }

  /// Reads from `offset` on, as much as `out` holds; fewer bytes at the end of the file. Throws std::system_error.
  std::size_t read(std::int64_t offset, std::span<char> out) const;

  /// The whole file. Throws std::runtime_error if it has more than `most` bytes.
  std::string read_all(std::int64_t most) const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  std::int64_t bytes_ = 0;
  std::string state_;
};

}  // namespace data::prepare
