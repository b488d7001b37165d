#include "data/prepare/splits.h"

#include <cmath>
#include <span>
#include <vector>

#include "data/order/splitmix.h"

namespace data::prepare {
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
