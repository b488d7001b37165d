#include "data/prepare/splits.h"

#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "data/order/random.h"

namespace data::prepare {
namespace {

constexpr std::size_t kBatchBytes = 1 << 20;  // of text that is encoded at once
constexpr std::size_t kBatchTexts = 1024;

format::Kind kind_of(RecordKind kind) {
  switch (kind) {
    case RecordKind::kPair:
      return format::Kind::kPairs;
    case RecordKind::kLabelled:
      return format::Kind::kLabelled;
    default:
      return format::Kind::kTokens;
  }
}

std::vector<std::string> fields_of(RecordKind kind) {
  if (kind == RecordKind::kPair) return {"input", "target"};
  return {"text"};
}

/// Collects texts, so that the tokenizer encodes many of them at once on all cores.
class TextBatch {
 public:
  TextBatch(const tokenizers::Tokenizer& tokenizer, const PutRecord& put) : tokenizer_(tokenizer), put_(put) {}

  void add(std::string text, std::int32_t label) {
    bytes_ += text.size();
    texts_.push_back(std::move(text));
    labels_.push_back(label);
  }
  void add_target(std::string_view target) {
    bytes_ += target.size();
    targets_.emplace_back(target);
  }
  bool is_full() const { return bytes_ >= kBatchBytes || texts_.size() >= kBatchTexts; }

  void flush() {
    auto ids = tokenizer_.encode_batch(texts_, false);
    auto target_ids =
        targets_.empty() ? std::vector<tokenizers::Tokenizer::Ids>() : tokenizer_.encode_batch(targets_, false);
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      Record record{.label = labels_[i]};
      record.fields.push_back(std::move(ids[i]));
      if (!target_ids.empty()) record.fields.push_back(std::move(target_ids[i]));
      put_(std::move(record));
    }
    texts_.clear();
    targets_.clear();
    labels_.clear();
    bytes_ = 0;
  }

 private:
  const tokenizers::Tokenizer& tokenizer_;
  const PutRecord& put_;
  std::vector<std::string> texts_, targets_;
  std::vector<std::int32_t> labels_;
  std::size_t bytes_ = 0;
};

}  // namespace

Records tokenized(TextSource source, std::shared_ptr<const tokenizers::Tokenizer> tokenizer, std::string prefix) {
  const auto kind = source.kind;
  return {kind_of(kind),
          source.description,
          source.name,
          source.labels,
          fields_of(kind),
          source.parts,
          [kind, read = std::move(source.read), tokenizer = std::move(tokenizer), prefix = std::move(prefix)](
              std::int64_t part, const PutRecord& put) {
            TextBatch batch(*tokenizer, put);
            read(part, [&](const TextRecord& record) {
              batch.add(prefix + std::string(record.text), record.label);
              if (kind == RecordKind::kPair) batch.add_target(record.target);
              if (batch.is_full()) batch.flush();
            });
            batch.flush();
          }};
}

Records pictures(ImageSource source, std::string name) {
  return {format::Kind::kImages,
          source.description,
          std::move(name),
          source.labels,
          {"image"},
          source.parts,
          [read = std::move(source.read)](std::int64_t part, const PutRecord& put) {
            read(part, [&](const Picture& picture, std::int32_t label) {
              put({.fields = {}, .picture = picture, .label = label});
            });
          }};
}

namespace {

constexpr std::uint64_t kShares = 1'000'000;

std::filesystem::path path_of(const std::filesystem::path& folder, const char* split, std::int64_t part) {
  return folder / format::file_name(split, static_cast<std::uint64_t>(part));
}

}  // namespace

bool is_validation(const SplitOptions& options, std::int64_t part, std::int64_t number) {
  const auto limit = static_cast<std::uint64_t>(std::llround(options.validation * static_cast<double>(kShares)));
  const auto place = (static_cast<std::uint64_t>(part) << 32) + static_cast<std::uint64_t>(number);
  return order::splitmix(options.seed + place) % kShares < limit;
}

PartWriter::PartWriter(const std::filesystem::path& folder, const FileKind& kind, const SplitOptions& options,
                       std::int64_t part)
    : options_(options),
      part_(part),
      train_(path_of(folder, kTrain, part), kind.kind, kind.vocabulary, kind.tokenizer) {
  if (options.validation > 0) {
    validation_.emplace(path_of(folder, kValidation, part), kind.kind, kind.vocabulary, kind.tokenizer);
  }
}

void PartWriter::write(const Record& record, bool validation) {
  auto& writer = validation ? *validation_ : train_;
  ++(validation ? in_validation_ : in_train_);
  if (record.fields.empty()) {
    writer.add({record.picture.rgb, record.picture.height, record.picture.width}, record.label);
    return;
  }
  const std::vector<std::span<const std::uint32_t>> fields(record.fields.begin(), record.fields.end());
  writer.add(fields, record.label);
}

void PartWriter::write_held(bool is_last) {
  if (!held_) return;
  bool validation = validation_ && is_validation(options_, part_, records_ - 1);
  if (is_last && part_ == 0 && validation_) {
    if (in_validation_ == 0) validation = true;
    if (in_train_ == 0) validation = false;
  }
  write(*held_, validation);
  held_.reset();
}

void PartWriter::add(Record&& record) {
  write_held(false);
  held_ = std::move(record);
  ++records_;
}

PartInfo PartWriter::finish() {
  write_held(true);
  PartInfo info{train_.finish()};
  if (validation_) info.validation = validation_->finish();
  return info;
}

std::optional<PartInfo> finished_part(const std::filesystem::path& folder, const SplitOptions& options,
                                      std::int64_t part) {
  const auto train = format::finished_file(path_of(folder, kTrain, part));
  if (!train) return std::nullopt;
  PartInfo info{*train};
  if (options.validation <= 0) return info;
  info.validation = format::finished_file(path_of(folder, kValidation, part));
  if (!info.validation) return std::nullopt;
  return info;
}

}  // namespace data::prepare
