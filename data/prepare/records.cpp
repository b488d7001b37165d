#include "data/prepare/records.h"

#include <utility>

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

}  // namespace data::prepare
