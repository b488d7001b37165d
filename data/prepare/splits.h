#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "data/format/format.h"
#include "data/format/writer.h"
#include "data/prepare/images/image_source.h"
#include "data/prepare/text/text_source.h"
#include "data/tokenizers/tokenizer.h"

namespace data::prepare {

/// One example as it is written: tokens or pixels.
struct Record {
  std::vector<tokenizers::Tokenizer::Ids> fields = {};  // [fields of the kind][ids]; empty: an image
  Picture picture = {};
  std::int32_t label = -1;
};

/// Receives one record.
using PutRecord = std::function<void(Record&& record)>;

/// A source as records in numbered parts. A part is always the same records in the same order.
struct Records {
  format::Kind kind = format::Kind::kTokens;
  std::string description;          ///< equal ones, with an equal tokenizer, mean equal records
  std::string name;                 ///< for people
  std::vector<std::string> labels;  ///< names by number
  std::vector<std::string> fields;  ///< names of a record's fields
  std::int64_t parts = 1;
  /// Passes the records of part 0 to parts - 1. Several threads may call it. Throws std::runtime_error naming file,
  /// place, finding and remedy.
  std::function<void(std::int64_t part, const PutRecord& put)> make;
};

/// Texts as tokens, without special tokens. `prefix` is put before each text, or before a pair's input.
Records tokenized(TextSource source, std::shared_ptr<const tokenizers::Tokenizer> tokenizer, std::string prefix);

/// Images as they are.
Records pictures(ImageSource source, std::string name);

inline constexpr const char* kTrain = "train";
inline constexpr const char* kValidation = "validation";

/// How records are shared between the splits "train" and "validation".
struct SplitOptions {
  double validation = 0.05;  // share of the records; 0: there is no split "validation"
  std::uint64_t seed = 1;
};

/// True if record `number` of a part belongs to the split "validation". Depends on its arguments alone.
bool is_validation(const SplitOptions& options, std::int64_t part, std::int64_t number);

/// The facts that all files of a folder have in common.
struct FileKind {
  format::Kind kind = format::Kind::kTokens;
  std::uint64_t vocabulary = 0;
  base::Sha256::Digest tokenizer{};
};

/// The facts about the files of one part. `validation`: nullopt if there is no such split.
struct PartInfo {
  format::FileInfo train;
  std::optional<format::FileInfo> validation = std::nullopt;
};

/// Writes the files of one part: train-NNNNN.mdat and validation-NNNNN.mdat. Without finish() neither is there.
///
/// A part whose source has no record gets files of 0 records. The last record of part 0 goes to the
/// split that has none of this part yet, to train first. So a small source has both splits, and a part is still a
/// function of its own records.
class PartWriter {
 public:
  PartWriter(const std::filesystem::path& folder, const FileKind& kind, const SplitOptions& options, std::int64_t part);

  /// Throws as format::Writer does.
  void add(Record&& record);
  PartInfo finish();

 private:
  void write(const Record& record, bool validation);
  void write_held(bool is_last);

  const SplitOptions options_;
  const std::int64_t part_;
  format::Writer train_;
  std::optional<format::Writer> validation_;
  std::optional<Record> held_;  // the newest record; whether it is the last is not known yet
  std::int64_t records_ = 0;    // held one included
  std::int64_t in_train_ = 0, in_validation_ = 0;
};

/// The facts about a part's finished files, after a check of every byte; nullopt if one of the files is not there.
/// Throws std::runtime_error for a damaged file.
std::optional<PartInfo> finished_part(const std::filesystem::path& folder, const SplitOptions& options,
                                      std::int64_t part);

}  // namespace data::prepare
