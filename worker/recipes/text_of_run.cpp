#include "recipes/text_of_run.h"

#include <filesystem>
#include <string_view>

#include "batch/causal.h"
#include "os/command.h"
#include "prepared/description.h"
#include "rank/errors.h"
#include "schema/limits.h"
#include "train/model_tokenizer.h"
#include "train/prepare_source.h"

namespace worker {
namespace {

constexpr std::string_view kBytes = "bytes";

}  // namespace

TextOfRun::TextOfRun(const RunConfig& config) : config_(config) {
  if (!is_source()) {
    folder_.emplace(config);
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
  return tokenizer_ ? 0 : static_cast<std::int64_t>(schema::kByteVocabulary);
}

RunData TextOfRun::open(const std::string& began_with, const RankEnvironment& place, std::int64_t model_vocabulary) {
  RunData out = is_source() ? open_source(began_with, place, model_vocabulary) : open_folder(place, model_vocabulary);
  const bool whole_rows = config_.data.packing == schema::Packing::kChunks;
  if (whole_rows) out.tokens_per_sample = config_.data.sequence_length;
  return out;
}

RunData TextOfRun::open_folder(const RankEnvironment& place, std::int64_t model_vocabulary) {
  RunData out = folder_->open(prepared::Kind::kTokens, place, model_vocabulary);
  const auto rows = [&](const std::shared_ptr<const prepared::Dataset>& split, const char* name) {
    const std::int64_t length = config_.data.sequence_length;
    if (config_.data.packing == schema::Packing::kDocuments)
      return packed_documents(split, length, static_cast<std::uint64_t>(config_.train.seed));
    return all_rows_of(stream_of(split), length,
                       std::string("the split ") + name + " of " + config_.data_options.prepared);
  };
  rows_.train = rows(folder_->data().train, "train");
  if (folder_->data().validation) rows_.validation = rows(folder_->data().validation, "validation");
  return out;
}

RunData TextOfRun::open_source(const std::string& began_with, const RankEnvironment& place,
                               std::int64_t model_vocabulary) {
  const std::filesystem::path cache = cache_folder_of(config_.data);
  std::optional<std::filesystem::path> folder;
  std::string missing, note;
  try {
    os::ProcessRunner runner(/*outlive_us=*/false);
    folder = prepare_source(config_.data, tokenizer_, runner);
  } catch (const UsageError& error) {
    if (began_with.empty()) throw;
    missing = error.what();
  }
  const bool is_other = folder && prepared::read_description(*folder).fingerprint != began_with;
  if (!began_with.empty() && (!folder || is_other)) {
    if (auto begun = find_prepared(began_with, cache)) {
      folder = std::move(begun);
      note = "the files of the text have changed since the run began" + (missing.empty() ? "" : " (" + missing + ")") +
             "; the run continues with the text that it began with, from " + cache.native();
    }
  }
  if (!folder) throw UsageError(missing);
  folder_.emplace(config_, *folder);
  RunData out = folder_->open(prepared::Kind::kTokens, place, model_vocabulary);
  out.name = note.empty() ? folder_->description()->source : "the text that the run began with";
  out.note = note;
  rows_ = split_rows(stream_of(folder_->data().train), config_.data.sequence_length, config_.data.validation_fraction);
  return out;
}

}  // namespace worker
