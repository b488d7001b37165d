#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "data/format/description.h"
#include "data/format/file.h"

namespace data::format {

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
