#include "recipes/folder_of_run.h"

#include <stdexcept>

#include "rank/errors.h"
#include "train/model_tokenizer.h"

namespace worker {
namespace {

/// Where `muster data prepare` keeps the tokenizer's files, in its folder.
constexpr const char* kTokenizerFolder = "tokenizer";

}  // namespace

FolderOfRun::FolderOfRun(const RunConfig& config) : config_(config) {
  const std::string& folder = config.data_options.prepared;
  try {
    description_ = prepared::read_description(folder);
  } catch (const std::runtime_error& error) {
    why_not_ = error.what();
  }
}

std::string FolderOfRun::source() const {
  return "prepared " + config_.data_options.prepared;
}

RunData FolderOfRun::open(prepared::Kind kind, const RankEnvironment& place, std::int64_t model_vocabulary) {
  const std::string& folder = config_.data_options.prepared;
  if (!description_) throw UsageError("data.prepared = \"" + folder + "\": " + why_not_);
  PreparedNeeds needs;
  needs.kinds = {kind};
  needs.recipe = config_.recipe;
  if (kind != prepared::Kind::kImages) needs.tokenizer = tokenizer_of(config_);
  if (model_vocabulary > 0) needs.vocabulary = model_vocabulary;
  data_ = open_prepared(folder, needs, place.local_rank, place.local_world_size);
  return {.fingerprint = data_->description.fingerprint, .name = folder + " (" + data_->description.source + ")"};
}

std::string FolderOfRun::tokenizer_path() const {
  if (description_ && description_->tokenizer_kind == "bytes") return "bytes";
  return (std::filesystem::path(config_.data_options.prepared) / kTokenizerFolder).native();
}

void FolderOfRun::note_tokenizer(fsdp::Json& extra) const {
  if (!description_ || description_->kind == prepared::Kind::kImages) return;
  extra["tokenizer"]["kind"] = description_->tokenizer_kind;
  extra["tokenizer"]["sha256"] = description_->tokenizer_sha256;
  extra["tokenizer"]["folder"] = tokenizer_path();
}

std::vector<std::filesystem::path> FolderOfRun::tokenizer_files() const {
  return files_of_tokenizer(std::filesystem::path(config_.data_options.prepared) / kTokenizerFolder);
}

}  // namespace worker
