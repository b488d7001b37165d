#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "batch/rows.h"
#include "data/token_file.h"
#include "recipes/folder_of_run.h"
#include "train/recipe.h"

namespace worker {

/// The text of a run that predicts tokens: a prepared folder (data.prepared), or a source that is cut into bytes here
/// (data.source). With data.packing = "chunks" all tokens are one stream, cut into rows of data.sequence_length. With
/// "documents" rows hold whole documents that do not see each other.
class TextOfRun {
 public:
  explicit TextOfRun(const RunConfig& config);

  /// As Recipe::data_source().
  std::string source() const;
  /// How many ids the text may have; 0: not known, as for a plan without the folder.
  std::int64_t vocabulary() const;
  /// The splits of a folder were made beforehand; see Recipe::open_data().
  RunData open(const std::string& began_with, const RankEnvironment& place, std::int64_t model_vocabulary);
  std::shared_ptr<const BatchSource> split(Split split) const {
    return split == Split::kTrain ? rows_.train : rows_.validation;
  }
  /// The prepared folder; null for a source that is cut into bytes here.
  const FolderOfRun* folder() const { return folder_ ? &*folder_ : nullptr; }

 private:
  RunData open_folder(const RankEnvironment& place, std::int64_t model_vocabulary);
  RunData open_source(const std::string& began_with);

  const RunConfig& config_;
  std::optional<FolderOfRun> folder_;
  std::optional<TokenFile> tokens_;
  SplitRows rows_;
};

}  // namespace worker
