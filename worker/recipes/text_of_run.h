#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/command.h"
#include "worker/batch/prepared_data.h"
#include "worker/batch/rows.h"
#include "worker/recipes/folder_of_run.h"
#include "worker/train/recipe.h"

namespace worker {

/// The text of a run that predicts tokens: a folder of prepared data that the run names (data.prepared), or one that is
/// made of a source when the run begins (data.source). With data.packing = "chunks" all tokens are one stream, cut into
/// rows of data.sequence_length. With "documents" rows hold whole documents that do not see each other.
class TextOfRun {
 public:
  explicit TextOfRun(const RunConfig& config);

  /// As Recipe::data_source().
  std::string source() const;
  /// How many ids the text may have; 0: not known, as for a plan without the folder or a source with a tokenizer.
  std::int64_t vocabulary() const;
  /// See Recipe::open_data(). A source has no splits, so its last rows are for validation.
  RunData open(const std::string& began_with, const agent::rank::RankEnvironment& place, std::int64_t model_vocabulary);
  std::shared_ptr<const BatchSource> split(Split split) const {
    return split == Split::kTrain ? rows_.train : rows_.validation;
  }
  /// The folder of prepared data. Null for a source before open().
  const FolderOfRun* folder() const { return folder_ ? &*folder_ : nullptr; }

 private:
  bool is_source() const { return config_.data_options.prepared.empty(); }
  RunData open_folder(const agent::rank::RankEnvironment& place, std::int64_t model_vocabulary);
  RunData open_source(const std::string& began_with, const agent::rank::RankEnvironment& place,
                      std::int64_t model_vocabulary);
  std::string note_of_change(const std::filesystem::path& folder, base::CommandRunner& runner) const;

  const RunConfig& config_;
  std::optional<ModelTokenizer> tokenizer_;  // of a source; none: bytes
  std::optional<FolderOfRun> folder_;
  SplitRows rows_;
};

}  // namespace worker
