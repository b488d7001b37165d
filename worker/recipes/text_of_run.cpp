#include "recipes/text_of_run.h"

#include "batch/causal.h"
#include "data/text_source.h"
#include "rank/errors.h"

namespace worker {

TextOfRun::TextOfRun(const RunConfig& config) : config_(config) {
  if (!config.data_options.prepared.empty()) folder_.emplace(config);
}

std::string TextOfRun::source() const {
  const DataConfig& data = config_.data;
  if (folder_) return folder_->source();
  return data.source + (data.path.empty() ? "" : " " + data.path) + " max_bytes=" + std::to_string(data.max_bytes);
}

std::int64_t TextOfRun::vocabulary() const {
  return folder_ ? folder_->vocabulary() : kByteVocabulary;
}

RunData TextOfRun::open(const std::string& began_with, const RankEnvironment& place, std::int64_t model_vocabulary) {
  RunData out = folder_ ? open_folder(place, model_vocabulary) : open_source(began_with);
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

RunData TextOfRun::open_source(const std::string& began_with) {
  const DataConfig& data = config_.data;
  const std::string cache = data.cache_folder.empty() ? default_cache_folder() : data.cache_folder;
  RunData out;
  std::optional<TextSource> source;
  std::string missing;
  try {
    source = open_text_source(
        {.kind = data.source, .path = data.path, .max_bytes = data.max_bytes, .man_folder = data.man_folder});
    out.name = source->name;
  } catch (const UsageError& error) {
    missing = error.what();
  }
  if (!began_with.empty()) tokens_ = find_tokens(began_with, cache, source ? source->description : "");
  if (!tokens_) {
    if (!source) throw UsageError(missing);
    tokens_ = open_or_build_tokens(*source, cache);
  } else if (!source || !tokens_->made_from(*source)) {
    out.name = "the text that the run began with";
    out.note = "the files of the text have changed since the run began" + (source ? "" : " (" + missing + ")") +
               "; the run continues with the text that it began with, from " + cache;
  }
  rows_ = split_rows(stream_of(tokens_->tokens()), data.sequence_length, data.validation_fraction);
  out.fingerprint = tokens_->fingerprint();
  return out;
}

}  // namespace worker
