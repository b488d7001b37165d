#include "worker/recipes/data_of_run.h"

#include <stdexcept>
#include <string_view>
#include <utility>

#include "base/usage_error.h"
#include "data/format/tokenizer_files.h"
#include "spec/limits.h"
#include "worker/train/prepare_source.h"

namespace worker {
namespace {

constexpr std::string_view kBytes = "bytes";

}  // namespace

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
  if (description_ && description_->tokenizer_kind == kBytes) return std::string(kBytes);
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

TextOfRun::TextOfRun(const RunConfig& config) : config_(config) {
  if (!is_source()) {
    folder_.emplace(config, data::format::Kind::kTokens);
  } else if (auto tokenizer = tokenizer_of(config); tokenizer && tokenizer->kind != kBytes) {
    tokenizer_ = std::move(tokenizer);
  }
}

std::string TextOfRun::source() const {
  if (!is_source()) return folder_->source();
  const DataConfig& data = config_.data;
  return data.source + (data.path.empty() ? "" : " " + data.path) + " max_bytes=" + std::to_string(data.max_bytes) +
         (tokenizer_ ? " tokenizer=" + tokenizer_->sha256 : "");
}

std::int64_t TextOfRun::vocabulary() const {
  if (!is_source()) return folder_->vocabulary();
  return tokenizer_ ? 0 : static_cast<std::int64_t>(spec::kByteVocabulary);
}

RunData TextOfRun::open(const std::string& began_with, const agent::rank::RankEnvironment& place,
                        std::int64_t model_vocabulary) {
  RunData out = is_source() ? open_source(began_with, place, model_vocabulary) : open_folder(place, model_vocabulary);
  const bool whole_rows = config_.data.packing == spec::Packing::kChunks;
  if (whole_rows) out.tokens_per_sample = config_.data.sequence_length;
  return out;
}

RunData TextOfRun::open_folder(const agent::rank::RankEnvironment& place, std::int64_t model_vocabulary) {
  RunData out = folder_->open(place, model_vocabulary);
  const auto rows = [&](const std::shared_ptr<const data::format::Dataset>& split, const char* name) {
    const std::int64_t length = config_.data.sequence_length;
    if (config_.data.packing == spec::Packing::kDocuments)
      return packed_documents(split, length, static_cast<std::uint64_t>(config_.train.seed));
    return all_rows_of(std::make_shared<TokenStream>(split), length,
                       std::string("the split ") + name + " of " + config_.data_options.prepared);
  };
  rows_.train = rows(folder_->data().train, "train");
  if (folder_->data().validation) rows_.validation = rows(folder_->data().validation, "validation");
  return out;
}

RunData TextOfRun::open_source(const std::string& began_with, const agent::rank::RankEnvironment& place,
                               std::int64_t model_vocabulary) {
  const std::filesystem::path cache = cache_folder_of(config_.data);
  base::ProcessRunner runner(/*outlive_us=*/false);
  std::optional<std::filesystem::path> folder;
  std::string note;
  if (!began_with.empty()) folder = find_prepared(began_with, cache);
  if (folder) {
    note = note_of_change(*folder, runner);
  } else {
    folder = prepare_source(config_.data, tokenizer_, runner);
  }
  folder_.emplace(config_, data::format::Kind::kTokens, *folder,
                  source_text(config_.data) + ", whose data are in " + folder->native(),
                  tokenizer_ ? tokenizer_->path : std::string(kBytes));
  RunData out = folder_->open(place, model_vocabulary);
  out.name = note.empty() ? folder_->description()->source : "the text that the run began with";
  out.note = note;
  rows_ = split_rows(std::make_shared<TokenStream>(folder_->data().train), config_.data.sequence_length,
                     config_.data.validation_fraction);
  return out;
}

/// For people: why the run goes on with the data in the folder. Empty: the source would give them today.
std::string TextOfRun::note_of_change(const std::filesystem::path& folder, base::CommandRunner& runner) const {
  std::string why = "the files of the text have changed since the run began";
  try {
    if (name_of_source(config_.data, tokenizer_, runner) == folder) return {};
  } catch (const std::runtime_error& error) {
    why = std::string("the text cannot be read now (") + error.what() + ")";
  }
  return why + "; the run continues with the text that it began with, from " + folder.parent_path().native();
}

}  // namespace worker
