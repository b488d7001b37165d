#include "data/prepare/look.h"

#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/numbers.h"
#include "data/prepare/tokenizer_copy.h"

namespace data::prepare {
namespace {

namespace fs = std::filesystem;
using format::Dataset;
using format::Description;

constexpr std::size_t kMostLabelsShown = 16;
constexpr std::size_t kNameColumn = 13;

void print_row(std::ostream& out, std::string name, const std::string& value) {
  name.resize(std::max(name.size() + 1, kNameColumn), ' ');
  out << name << value << "\n";
}

std::string unit_of(format::Kind kind) {
  return kind == format::Kind::kImages ? "bytes" : "tokens";
}

std::string labels_text(const std::vector<std::string>& labels) {
  std::string out = std::to_string(labels.size()) + ":";
  for (std::size_t i = 0; i < labels.size() && i < kMostLabelsShown; ++i) out += (i == 0 ? " " : ", ") + labels[i];
  return labels.size() > kMostLabelsShown ? out + ", ..." : out;
}

std::string split_text(const Description& description, const format::SplitInfo& split) {
  std::uint64_t bytes = 0;
  for (const auto& file : split.files) bytes += file.bytes;
  const auto unit = unit_of(description.kind);
  return grouped(split.records) + " records, " + grouped(split.elements) + " " + unit + ", the longest " +
         grouped(split.longest) + "; " + std::to_string(split.files.size()) +
         (split.files.size() == 1 ? " file, " : " files, ") + base::bytes_text(static_cast<std::int64_t>(bytes));
}

void print_tokens(const Dataset& data, const DecodeOptions& options, std::ostream& out) {
  const auto& description = data.description();
  const auto tokenizer = tokenizer_of(options.folder, description);
  for (std::size_t field = 0; field < description.fields.size(); ++field) {
    const auto view = data.ids(options.record, static_cast<std::int64_t>(field));
    std::vector<std::uint32_t> ids;
    for (std::int64_t i = 0; i < view.size; ++i) ids.push_back(static_cast<std::uint32_t>(view[i]));
    out << description.fields[field] << " (" << grouped(view.size) << " tokens): ";
    if (!options.ids) out << tokenizer->decode(ids, false);
    for (std::size_t i = 0; options.ids && i < ids.size(); ++i) out << (i == 0 ? "" : " ") << ids[i];
    out << "\n";
  }
}

void print_image(const Dataset& data, const DecodeOptions& options, std::ostream& out) {
  const auto image = data.image(options.record);
  out << "image: " << image.width << " x " << image.height << " pixels, RGB\n";
  if (options.to.empty()) return;
  std::ofstream file(options.to, std::ios::binary | std::ios::trunc);
  file << "P6\n" << image.width << " " << image.height << "\n255\n";
  file.write(reinterpret_cast<const char*>(image.rgb.data()), static_cast<std::streamsize>(image.rgb.size()));
  file.close();
  if (!file) throw std::runtime_error("--to " + options.to.native() + ": cannot be written; name another file");
}

}  // namespace

void show(const ShowOptions& options, std::ostream& out) {
  const auto description = format::read_description(options.folder);
  if (options.json) {
    out << description.text;
    return;
  }
  print_row(out, "kind", std::string(format::name_of(description.kind)));
  print_row(out, "source", description.source);
  print_row(out, "made by", description.made_by);
  if (description.kind != format::Kind::kImages) {
    print_row(out, "tokenizer",
              description.tokenizer_kind + ", " + grouped(description.vocabulary) + " ids, sha256 " +
                  description.tokenizer_sha256);
    if (!description.prefix_text.empty()) print_row(out, "prefix", "\"" + description.prefix_text + "\"");
  }
  if (!description.labels.empty()) print_row(out, "labels", labels_text(description.labels));
  for (const auto& [name, split] : description.splits) print_row(out, name, split_text(description, split));
  print_row(out, "fingerprint", description.fingerprint);
}

std::int64_t files_of(const CheckOptions& options) {
  std::int64_t files = 0;
  for (const auto& [name, split] : format::read_description(options.folder).splits) files += std::ssize(split.files);
  return files;
}

bool check_bytes(const fs::path& folder, const std::atomic<int>& stop,
                 const std::function<void(const format::FileInfo&)>& on_file) {
  const auto description = format::read_description(folder);
  for (const auto& [name, split] : description.splits) {
    Dataset::open(folder, name);  // compares the files with data.json
    for (const auto& info : split.files) {
      const auto file = format::File::open(folder / info.name);
      for (std::uint64_t block = 0; block < file.blocks(); ++block) {
        if (stop != 0) return false;
        file.verify(block, 1);
      }
      if (on_file) on_file(info);
    }
  }
  if (format::fingerprint_of(folder, description) != description.fingerprint) {
    throw std::runtime_error((folder / format::kDescriptionName).native() +
                             ": its fingerprint is not that of the files" + format::kRemedy);
  }
  if (description.kind != format::Kind::kImages) tokenizer_of(folder, description);
  return true;
}

bool check(const CheckOptions& options, Progress& progress, const std::atomic<int>& stop, std::ostream& out) {
  std::int64_t files = 0;
  std::uint64_t bytes = 0;
  const auto on_file = [&](const format::FileInfo& file) {
    progress.add_records(file.records, static_cast<std::int64_t>(file.elements));
    progress.end_part(false, file.records);
    ++files;
    bytes += file.bytes;
  };
  if (!check_bytes(options.folder, stop, on_file)) return false;
  out << options.folder.native() << " is whole: " << files << (files == 1 ? " file, " : " files, ")
      << base::bytes_text(static_cast<std::int64_t>(bytes)) << "\n";
  return true;
}

void decode(const DecodeOptions& options, std::ostream& out) {
  const auto data = Dataset::open(options.folder, options.split);
  if (options.record >= data.records()) {
    throw std::runtime_error("--record " + std::to_string(options.record) + ": the split " + options.split + " of " +
                             options.folder.native() + " has " + grouped(data.records()) +
                             " records, counted from 0; want a smaller number");
  }
  const auto& description = data.description();
  const bool is_image = description.kind == format::Kind::kImages;
  if (!is_image && !options.to.empty()) throw std::runtime_error("--to: the records are no images; leave it out");
  if (is_image && options.ids) throw std::runtime_error("--ids: the records are images; leave it out");
  if (const auto label = data.label(options.record); label >= 0) {
    const auto number = static_cast<std::size_t>(label);
    out << "label: " << (number < description.labels.size() ? description.labels[number] : std::to_string(label))
        << "\n";
  }
  if (is_image) {
    print_image(data, options, out);
  } else {
    print_tokens(data, options, out);
  }
}

}  // namespace data::prepare
