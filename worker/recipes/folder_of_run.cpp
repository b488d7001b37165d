#include "worker/recipes/folder_of_run.h"

#include <stdexcept>
#include <utility>

#include "base/usage_error.h"
#include "data/format/tokenizer_files.h"
#include "worker/train/model_tokenizer.h"

namespace worker {

FolderOfRun::FolderOfRun(const RunConfig& config, data::format::Kind kind)
    : FolderOfRun(config, kind, config.data_options.prepared, "", "") {}

FolderOfRun::FolderOfRun(const RunConfig& config, data::format::Kind kind, std::filesystem::path folder,
                         std::string place, std::string tokenizer)
    : config_(config),
      kind_(kind),
      folder_(std::move(folder)),
      place_(std::move(place)),
      tokenizer_(std::move(tokenizer)) {
  try {
    description_ = data::format::read_description(folder_);
  } catch (const std::runtime_error& error) {
    why_not_ = error.what();
    return;
  }
  try {
    check_kind(*description_, {.kinds = {kind_}, .recipe = config_.recipe});
  } catch (const base::UsageError& error) {
    throw base::UsageError(this->place() + ": " + error.what());
  }
}

std::string FolderOfRun::place() const {
  return place_.empty() ? "data.prepared = \"" + folder_.native() + "\"" : place_;
}

std::string FolderOfRun::source() const {
  return "prepared " + folder_.native();
}

RunData FolderOfRun::open(const agent::rank::RankEnvironment& place, std::int64_t model_vocabulary) {
  if (!description_) throw base::UsageError(this->place() + ": " + why_not_);
  PreparedNeeds needs;
  needs.place = place_;
  needs.kinds = {kind_};
  needs.recipe = config_.recipe;
  if (kind_ != data::format::Kind::kImages) needs.tokenizer = tokenizer_of(config_);
  if (model_vocabulary > 0) needs.vocabulary = model_vocabulary;
  data_ = open_prepared(folder_, needs, place.local_rank, place.local_world_size);
  return {.fingerprint = data_->description.fingerprint,
          .name = folder_.native() + " (" + data_->description.source + ")"};
}

std::string FolderOfRun::tokenizer_path() const {
  if (!tokenizer_.empty()) return tokenizer_;
  if (description_ && description_->tokenizer_kind == "bytes") return "bytes";
  return (folder_ / data::format::kTokenizerFolder).native();
}

void FolderOfRun::note_tokenizer(fsdp::Json& extra) const {
  if (!description_ || description_->kind == data::format::Kind::kImages) return;
  extra["tokenizer"]["kind"] = description_->tokenizer_kind;
  extra["tokenizer"]["sha256"] = description_->tokenizer_sha256;
  extra["tokenizer"]["folder"] = tokenizer_path();
}

std::vector<std::filesystem::path> FolderOfRun::tokenizer_files() const {
  return data::format::tokenizer_files(folder_ / data::format::kTokenizerFolder);
}

}  // namespace worker
