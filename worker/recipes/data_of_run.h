#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/command.h"
#include "worker/batch/causal_rows.h"
#include "worker/batch/prepared_data.h"
#include "worker/train/recipe.h"

namespace worker {

/// The folder of prepared data that a run trains on.
class FolderOfRun {
 public:
  /// data.prepared, which the run must have. Reads the description of the folder, if it can. Throws base::UsageError
  /// naming the place where the data are of another kind.
  FolderOfRun(const RunConfig& config, data::format::Kind kind);
  /// A folder that was made of a source. `place` names it in messages. `tokenizer`: where the tokenizer is that made
  /// it, or "bytes".
  FolderOfRun(const RunConfig& config, data::format::Kind kind, std::filesystem::path folder, std::string place,
              std::string tokenizer);

  /// Null where it cannot be read, as for a plan on another machine.
  const data::format::Description* description() const { return description_ ? &*description_ : nullptr; }
  /// The number of ids that texts may have; 0: not known.
  std::int64_t vocabulary() const { return description_ ? description_->vocabulary : 0; }
  /// Returns the same as Recipe::data_source().
  std::string source() const;

  /// Opens both splits. `model_vocabulary`: see PreparedNeeds; 0: not compared. Throws base::UsageError naming the
  /// place where it cannot, and as open_prepared().
  RunData open(const agent::rank::RankEnvironment& place, std::int64_t model_vocabulary = 0);
  /// After open().
  const PreparedData& data() const { return *data_; }

  /// Where the tokenizer's files are kept; "bytes" for the byte vocabulary.
  std::string tokenizer_path() const;
  /// Names it in a checkpoint's extra.tokenizer: {kind, sha256, folder}.
  void note_tokenizer(fsdp::Json& extra) const;
  /// Its files, for an export. Empty for bytes.
  std::vector<std::filesystem::path> tokenizer_files() const;

 private:
  std::string place() const;

  const RunConfig& config_;
  const data::format::Kind kind_;
  const std::filesystem::path folder_;
  const std::string place_, tokenizer_;  // empty: those of data.prepared
  std::optional<data::format::Description> description_;
  std::string why_not_;  // it cannot be read
  std::optional<PreparedData> data_;
};

/// A recipe with one folder of prepared data. open_data() sets the samples of both splits.
class FolderRecipe : public Recipe {
 public:
  std::string data_source() const override { return folder_.source(); }
  std::shared_ptr<const BatchSource> data(Split split) const override {
    return split == Split::kTrain ? train_ : validation_;
  }

 protected:
  FolderRecipe(const RunConfig& config, data::format::Kind kind) : config_(config), folder_(config, kind) {}

  const RunConfig& config_;
  FolderOfRun folder_;
  std::shared_ptr<const BatchSource> train_, validation_;
};

/// The text of a run that predicts tokens: a folder of prepared data that the run names (data.prepared), or one that is
/// made of a source when the run begins (data.source). With data.packing = "chunks" all tokens are one stream, cut into
/// rows of data.sequence_length. With "documents" rows hold whole documents that do not see each other.
class TextOfRun {
 public:
  explicit TextOfRun(const RunConfig& config);

  /// Returns the same as Recipe::data_source().
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
