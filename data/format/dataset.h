#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/format/format.h"

namespace data::format {

inline constexpr std::string_view kDescriptionName = "data.json";
/// The folder of the tokenizer's files beside it.
inline constexpr std::string_view kTokenizerFolder = "tokenizer";

/// The files of a split are one sequence of records, in this order: file_name(split, 0), file_name(split, 1), ...
struct SplitInfo {
  std::vector<FileInfo> files;
  // Sums and the maximum over the files.
  std::int64_t records = 0;
  std::int64_t elements = 0;
  std::int64_t longest = 0;
};

/// The description of a folder of prepared data: data.json, which is written last. A folder without it is unfinished.
struct Description {
  Kind kind = Kind::kTokens;
  std::string fingerprint;  // fingerprint_of()
  std::string source;       // what the data were made from, for people
  std::string made_by;      // "muster-data 0.1.0"
  // Facts about the tokenizer; all empty for images.
  std::string tokenizer_kind;    // "bytes", "tokenizer.json", "sentencepiece"
  std::string tokenizer_sha256;  // 64 hexadecimal digits
  std::int64_t vocabulary = 0;
  std::vector<std::uint32_t> prefix, suffix;  // special tokens around a record, which its elements lack
  std::optional<std::int64_t> pad, bos, eos, mask;
  std::vector<std::string> labels;  // the name of label i; empty: records have none
  std::vector<std::string> fields;  // the name of each field of a record
  std::string prefix_text;          // before each input, as T5 wants it; it is part of the elements
  std::string options = "{}";       // of the command that prepared: a JSON object
  std::map<std::string, SplitInfo, std::less<>> splits;
  std::string text;  // data.json with sorted keys, of which equal descriptions have equal bytes
};

/// Reads `folder`/data.json. In each FileInfo, `elements` and `longest` stay 0. Throws std::runtime_error naming the
/// file, the member, its value and the remedy.
Description read_description(const std::filesystem::path& folder);

/// Completes the description from the finished files of its splits (which gives sums, fingerprint and text) and writes
/// it to `folder`/data.json, as a whole and durably. Throws std::runtime_error, as read_description does, for a
/// description that it would refuse or that the files contradict, and std::system_error when the disk refuses.
void write_description(const std::filesystem::path& folder, Description& description);

/// "sha256:<hex>" of what a training sees: kind, tokenizer with its special tokens, names of labels, and of each split
/// its name and its files' headers and checksums. Equal data have equal fingerprints, whatever their source and folder.
/// Opens every file; throws as File does.
std::string fingerprint_of(const std::filesystem::path& folder, const Description& description);

/// A split of a folder of prepared data: its files as one sequence of records. Thread-safe. Views that it gives (Ids,
/// Image) point into its files, which are mapped as long as it lives; a move keeps them.
class Dataset {
 public:
  /// Reads data.json and opens the split's files. Throws std::runtime_error naming the folder or file, the fault and
  /// the remedy: no such split, a file that File::open refuses, or one that is not the file of data.json.
  static Dataset open(const std::filesystem::path& folder, std::string_view split);

  const Description& description() const { return description_; }
  std::int64_t records() const { return starts_.back(); }

  // The parts of a record as in File, by the record's number within the split.
  Ids ids(std::int64_t record, std::int64_t field) const;
  std::int32_t label(std::int64_t record) const;
  Image image(std::int64_t record) const;
  std::int64_t length(std::int64_t record) const;

  /// Verifies the blocks b with b % world_size == rank, counted over all files, so that the ranks together read the
  /// data once. Throws as File::verify does; the other ranks do not hear of it.
  void verify(int rank, int world_size) const;

 private:
  Dataset() = default;
  /// The file that holds the record, and the record's number in it. Throws std::out_of_range.
  std::pair<const File*, std::int64_t> find(std::int64_t record) const;

  Description description_;
  std::vector<File> files_;
  std::vector<std::int64_t> starts_{0};  // starts_[i]: the first record of file i; the last: all records
};

}  // namespace data::format
