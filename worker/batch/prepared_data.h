#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/format/dataset.h"

namespace worker {

/// The tokenizer whose ids a model knows.
struct ModelTokenizer {
  std::string path;    ///< as `muster data prepare --tokenizer` takes it: a folder, a file or "bytes"
  std::string kind;    ///< "bytes", "tokenizer.json", "sentencepiece"
  std::string sha256;  ///< 64 hexadecimal digits
};

/// Requirements that a run has for its data.
struct PreparedNeeds {
  std::vector<data::format::Kind> kinds;         ///< any of them
  std::string recipe;                            ///< its name, for messages
  std::string place = {};                        ///< what names the folder, for messages; empty: data.prepared = FOLDER
  std::optional<ModelTokenizer> tokenizer = {};  ///< none: not compared
  std::optional<std::int64_t> vocabulary = {};   ///< model.vocab_size; none: not compared
};

/// A folder of prepared data, opened for a training.
struct PreparedData {
  data::format::Description description;
  std::shared_ptr<const data::format::Dataset> train;       ///< at least one record
  std::shared_ptr<const data::format::Dataset> validation;  ///< null: the split is missing or has no records
};

/// Throws base::UsageError, which does not name the folder, where the data are of another kind than a run wants.
void check_kind(const data::format::Description& is, const PreparedNeeds& needs);

/// Opens a folder of `muster data prepare`, and reads the blocks b with b % world_size == rank of both splits, so that
/// these ranks together verify all data once. Another rank's damage is not heard of here. Not collective.
///
/// Throws base::UsageError naming folder, finding and remedy: the folder is unfinished, damaged, of another kind, made
/// with another tokenizer, has ids beyond the model's vocabulary, or nothing to train on. Throws std::system_error
/// where the file system refuses, which may pass.
PreparedData open_prepared(const std::filesystem::path& folder, const PreparedNeeds& needs, int rank, int world_size);

}  // namespace worker
