#include "data/format/reader.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "base/checksum.h"

namespace data::format {
namespace {

constexpr std::string_view kRemedy = "; remove the folder and prepare the data again";

std::string numbers(std::int64_t is, std::int64_t want) {
  return std::to_string(is) + ", and data.json says " + std::to_string(want) + std::string(kRemedy);
}

/// Throws when the file is not the one that data.json names.
void check_file(const File& file, const FileInfo& want, const Description& description,
                const std::filesystem::path& path) {
  const auto fail = [&](const std::string& why) { throw std::runtime_error(path.string() + ": " + why); };
  const FileInfo is = file.info();
  if (file.kind() != description.kind) {
    fail("it holds " + std::string(name_of(file.kind())) + ", and data.json says " +
         std::string(name_of(description.kind)) + std::string(kRemedy));
  }
  if (file.vocabulary() != description.vocabulary) {
    fail("its vocabulary is " + numbers(file.vocabulary(), description.vocabulary));
  }
  if (file.kind() != Kind::kImages && base::hex(file.tokenizer()) != description.tokenizer_sha256) {
    fail("it was made with the tokenizer " + base::hex(file.tokenizer()) + ", and data.json says " +
         description.tokenizer_sha256 + std::string(kRemedy));
  }
  if (is.records != want.records) fail("its records are " + numbers(is.records, want.records));
  if (is.bytes != want.bytes || is.checksum != want.checksum) {
    fail("it is another file than the one that data.json describes" + std::string(kRemedy));
  }
  const auto labels = static_cast<std::int64_t>(description.labels.size());
  for (std::int64_t record = 0; record < file.records(); ++record) {
    if (file.label(record) >= labels) {
      fail("record " + std::to_string(record) + " has the label " + std::to_string(file.label(record)) +
           ", and data.json names " + std::to_string(labels) + " labels" + std::string(kRemedy));
    }
  }
}

}  // namespace

Dataset Dataset::open(const std::filesystem::path& folder, std::string_view split) {
  Dataset out;
  out.description_ = read_description(folder);
  const auto found = out.description_.splits.find(split);
  if (found == out.description_.splits.end()) {
    std::string names;
    for (const auto& [name, unused] : out.description_.splits) names += (names.empty() ? "" : ", ") + name;
    throw std::runtime_error(folder.string() + " has no split \"" + std::string(split) + "\"; it has " + names);
  }
  SplitInfo sums;
  for (const auto& want : found->second.files) {
    const auto path = folder / want.name;
    out.files_.push_back(File::open(path));
    check_file(out.files_.back(), want, out.description_, path);
    const FileInfo info = out.files_.back().info();
    sums.elements += info.elements;
    sums.longest = std::max(sums.longest, info.longest);
    out.starts_.push_back(out.starts_.back() + info.records);
  }
  const auto check_sum = [&](const char* what, std::int64_t is, std::int64_t says) {
    if (is == says) return;
    throw std::runtime_error((folder / kDescriptionName).string() + ": splits." + std::string(split) + "." + what +
                             " is " + std::to_string(says) + ", and the files have " + std::to_string(is) +
                             std::string(kRemedy));
  };
  check_sum("records", out.records(), found->second.records);
  check_sum("elements", sums.elements, found->second.elements);
  check_sum("longest", sums.longest, found->second.longest);
  return out;
}

std::pair<const File*, std::int64_t> Dataset::find(std::int64_t record) const {
  if (record < 0 || record >= records()) {
    throw std::out_of_range("there is no record " + std::to_string(record) + " of " + std::to_string(records()));
  }
  // The last file that starts at or before the record: files without records start where the next one does.
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), record);
  const auto file = static_cast<std::size_t>(after - starts_.begin() - 1);
  return {&files_[file], record - starts_[file]};
}

Ids Dataset::ids(std::int64_t record, std::int64_t field) const {
  const auto [file, inside] = find(record);
  return file->ids(inside, field);
}

std::int32_t Dataset::label(std::int64_t record) const {
  const auto [file, inside] = find(record);
  return file->label(inside);
}

Image Dataset::image(std::int64_t record) const {
  const auto [file, inside] = find(record);
  return file->image(inside);
}

std::int64_t Dataset::length(std::int64_t record) const {
  const auto [file, inside] = find(record);
  return file->length(inside);
}

void Dataset::verify(int rank, int world_size) const {
  if (rank < 0 || rank >= world_size) {
    throw std::invalid_argument("rank " + std::to_string(rank) + " of " + std::to_string(world_size));
  }
  const auto every = static_cast<std::uint64_t>(world_size);
  std::uint64_t before = 0;  // blocks of earlier files
  for (const File& file : files_) {
    const std::uint64_t skipped = (static_cast<std::uint64_t>(rank) + every - before % every) % every;
    for (std::uint64_t block = skipped; block < file.blocks(); block += every) file.verify(block, 1);
    before += file.blocks();
  }
}

}  // namespace data::format
