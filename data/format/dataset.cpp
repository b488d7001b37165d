#include "data/format/dataset.h"

#include <algorithm>
#include <limits>
#include <set>
#include <span>
#include <stdexcept>

#include "base/checksum.h"
#include "base/durable_file.h"
#include "fsdp/text/json.h"

namespace data::format {
namespace {

using fsdp::Json;

constexpr std::int64_t kFormat = 1;
constexpr std::uintmax_t kMostBytes = std::uintmax_t{1} << 28;  // some 2 million files
constexpr std::string_view kFingerprintStart = "sha256:";

[[noreturn]] void fail_at(const std::string& where, const std::string& why) {
  throw std::runtime_error(where + " " + why);
}

/// A value of data.json with its place, for messages.
class Place {
 public:
  Place(const Json& value, std::string where) : value_(&value), where_(std::move(where)) {}

  Place member(std::string_view key) const {
    object();
    const Json* found = value_->find(key);
    if (found == nullptr) fail_at(where_, "has no \"" + std::string(key) + "\"");
    return {*found, (where_.empty() ? "" : where_ + ".") + std::string(key)};
  }
  std::vector<Place> elements() const {
    if (!value_->is_array()) fail_as("an array");
    std::vector<Place> out;
    for (const Json& element : value_->as_array()) {
      out.emplace_back(element, where_ + "[" + std::to_string(out.size()) + "]");
    }
    return out;
  }
  const Json::Object& object() const {
    if (!value_->is_object()) fail_as("an object");
    return value_->as_object();
  }
  const std::string& text() const {
    if (!value_->is_string()) fail_as("a string");
    return value_->as_string();
  }
  std::int64_t integer(std::int64_t low, std::int64_t high) const {
    if (!value_->is_int() || value_->as_int() < low || value_->as_int() > high) {
      fail_as("an integer from " + std::to_string(low) + " to " + std::to_string(high));
    }
    return value_->as_int();
  }
  bool is_null() const { return value_->is_null(); }
  const Json& json() const { return *value_; }
  [[noreturn]] void fail_as(const std::string& want) const {
    std::string is = value_->dump();
    if (is.size() > 80) is = is.substr(0, 77) + "...";
    fail_at(where_, "is " + is + ", not " + want);
  }

 private:
  const Json* value_;
  std::string where_;
};

constexpr std::int64_t kAnyCount = std::numeric_limits<std::int64_t>::max();

std::vector<std::string> texts_of(const Place& place) {
  std::vector<std::string> out;
  for (const Place& element : place.elements()) out.push_back(element.text());
  return out;
}

std::vector<std::uint32_t> ids_of(const Place& place, std::int64_t vocabulary) {
  std::vector<std::uint32_t> out;
  for (const Place& element : place.elements()) {
    out.push_back(static_cast<std::uint32_t>(element.integer(0, vocabulary - 1)));
  }
  return out;
}

std::optional<std::int64_t> id_of(const Place& place, std::int64_t vocabulary) {
  if (place.is_null()) return std::nullopt;
  return place.integer(0, vocabulary - 1);
}

bool is_digest(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// Names of splits become names of files.
bool is_split_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
}

void read_tokenizer(const Place& place, Description& out) {
  if (out.kind == Kind::kImages) {
    if (!place.is_null()) place.fail_as("null, as images have no tokenizer");
    return;
  }
  out.tokenizer_kind = place.member("kind").text();
  out.tokenizer_sha256 = place.member("sha256").text();
  if (!is_digest(out.tokenizer_sha256)) place.member("sha256").fail_as("64 hexadecimal digits");
  out.vocabulary = place.member("vocabulary").integer(1, static_cast<std::int64_t>(kMostVocabulary));
  out.prefix = ids_of(place.member("prefix"), out.vocabulary);
  out.suffix = ids_of(place.member("suffix"), out.vocabulary);
  out.pad = id_of(place.member("pad"), out.vocabulary);
  out.bos = id_of(place.member("bos"), out.vocabulary);
  out.eos = id_of(place.member("eos"), out.vocabulary);
  out.mask = id_of(place.member("mask"), out.vocabulary);
}

SplitInfo read_split(const std::string& name, const Place& place) {
  if (!is_split_name(name)) fail_at("splits", "has the name \"" + name + "\", not one of a-z, 0-9 and _");
  SplitInfo out;
  out.records = place.member("records").integer(0, kAnyCount);
  out.elements = place.member("elements").integer(0, kAnyCount);
  out.longest = place.member("longest").integer(0, static_cast<std::int64_t>(kMostInRecord));
  for (const Place& entry : place.member("files").elements()) {
    FileInfo file;
    file.name = entry.member("name").text();
    // Any other name could be a path out of the folder.
    const auto want = file_name(name, out.files.size());
    if (file.name != want) entry.member("name").fail_as("\"" + want + "\"");
    file.bytes = static_cast<std::uint64_t>(entry.member("bytes").integer(0, kAnyCount));
    file.records = entry.member("records").integer(0, static_cast<std::int64_t>(kMostRecords));
    file.checksum =
        static_cast<std::uint32_t>(entry.member("checksum").integer(0, std::numeric_limits<std::uint32_t>::max()));
    out.files.push_back(std::move(file));
  }
  if (out.files.empty()) place.member("files").fail_as("one file or more");
  return out;
}

void read_labels(const Place& place, Description& out) {
  out.labels = texts_of(place);
  std::set<std::string_view> seen;
  for (const auto& label : out.labels) {
    if (!seen.insert(label).second) place.fail_as("a list of labels that differ");
  }
  const bool may_have = out.kind == Kind::kLabelled || out.kind == Kind::kImages;
  if (!may_have && !out.labels.empty()) place.fail_as("empty, as records of this kind have no labels");
}

std::string text_of(const Json& json) {
  return json.dump(2) + "\n";
}

Description parse_description(std::string_view text) {
  const Json json = Json::parse(text);
  const Place root(json, "");
  if (const auto format = root.member("format"); format.json() != Json(kFormat)) {
    format.fail_as(std::to_string(kFormat) + ", the format that this muster reads");
  }
  Description out;
  const auto kind = kind_of(root.member("kind").text());
  if (!kind) root.member("kind").fail_as("tokens, pairs, labelled or images");
  out.kind = *kind;
  out.fingerprint = root.member("fingerprint").text();
  const std::string_view fingerprint = out.fingerprint;
  if (!fingerprint.starts_with(kFingerprintStart) || !is_digest(fingerprint.substr(kFingerprintStart.size()))) {
    root.member("fingerprint").fail_as("sha256: and 64 hexadecimal digits");
  }
  out.source = root.member("source").text();
  out.made_by = root.member("made_by").text();
  read_tokenizer(root.member("tokenizer"), out);
  read_labels(root.member("labels"), out);
  out.fields = texts_of(root.member("fields"));
  if (out.fields.size() != fields_of(out.kind)) {
    root.member("fields").fail_as(std::to_string(fields_of(out.kind)) + " names");
  }
  out.prefix_text = root.member("prefix_text").text();
  root.member("options").object();
  out.options = root.member("options").json().dump();
  for (const auto& [name, split] : root.member("splits").object()) {
    out.splits.emplace(name, read_split(name, Place(split, "splits." + name)));
  }
  if (out.splits.empty()) root.member("splits").fail_as("one split or more");
  out.text = text_of(json);
  return out;
}

template <class Value>
Json list_of(const std::vector<Value>& values) {
  Json::Array out;
  for (const auto& value : values) {
    if constexpr (std::is_integral_v<Value>) {
      out.emplace_back(static_cast<std::int64_t>(value));
    } else {
      out.emplace_back(value);
    }
  }
  return out;
}

Json json_of(const std::optional<std::int64_t>& id) {
  return id ? Json(*id) : Json();
}

Json json_of(const SplitInfo& split) {
  Json::Array files;
  for (const auto& file : split.files) {
    files.emplace_back(Json::Object{{"name", file.name},
                                    {"bytes", file.bytes},
                                    {"records", file.records},
                                    {"checksum", static_cast<std::int64_t>(file.checksum)}});
  }
  return Json::Object{{"records", split.records},
                      {"elements", split.elements},
                      {"longest", split.longest},
                      {"files", std::move(files)}};
}

Json json_of(const Description& of) {
  Json tokenizer;
  if (of.kind != Kind::kImages) {
    tokenizer =
        Json::Object{{"kind", of.tokenizer_kind},    {"sha256", of.tokenizer_sha256}, {"vocabulary", of.vocabulary},
                     {"prefix", list_of(of.prefix)}, {"suffix", list_of(of.suffix)},  {"pad", json_of(of.pad)},
                     {"bos", json_of(of.bos)},       {"eos", json_of(of.eos)},        {"mask", json_of(of.mask)}};
  }
  Json::Object splits;
  for (const auto& [name, split] : of.splits) splits.emplace(name, json_of(split));
  return Json::Object{{"format", kFormat},
                      {"kind", name_of(of.kind)},
                      {"fingerprint", of.fingerprint},
                      {"source", of.source},
                      {"made_by", of.made_by},
                      {"tokenizer", std::move(tokenizer)},
                      {"labels", list_of(of.labels)},
                      {"fields", list_of(of.fields)},
                      {"prefix_text", of.prefix_text},
                      {"options", Json::parse(of.options)},
                      {"splits", std::move(splits)}};
}

/// Sums up the files, which must be those that the description names.
void sum_up(const std::filesystem::path& folder, SplitInfo& split) {
  split.records = split.elements = split.longest = 0;
  for (auto& info : split.files) {
    const FileInfo found = File::open(folder / info.name).info();
    if (found.checksum != info.checksum || found.bytes != info.bytes || found.records != info.records) {
      fail_at((folder / info.name).string() + ":", std::string("another file than the one that was written") + kRemedy);
    }
    info = found;
    split.records += found.records;
    split.elements += found.elements;
    split.longest = std::max(split.longest, found.longest);
  }
}

/// Hashes texts so that no two lists of texts give the same bytes.
class ListHash {
 public:
  void add(std::string_view text) {
    add(text.size());
    whole_.add(text);
  }
  void add(std::uint64_t number) { whole_.add({reinterpret_cast<const char*>(&number), sizeof number}); }
  void add(const std::optional<std::int64_t>& id) { add(id ? static_cast<std::uint64_t>(*id) : ~std::uint64_t{0}); }
  void add(std::span<const std::uint32_t> ids) {
    add(std::uint64_t{ids.size()});
    for (const auto id : ids) add(std::uint64_t{id});
  }
  std::string hex() const { return base::hex(whole_.digest()); }

 private:
  base::Sha256 whole_;
};

}  // namespace

std::string fingerprint_of(const std::filesystem::path& folder, const Description& description) {
  ListHash hash;
  hash.add(name_of(description.kind));
  hash.add(std::string_view(description.tokenizer_sha256));
  hash.add(std::span(description.prefix));
  hash.add(std::span(description.suffix));
  for (const auto& id : {description.pad, description.bos, description.eos, description.mask}) hash.add(id);
  hash.add(std::uint64_t{description.labels.size()});
  for (const auto& label : description.labels) hash.add(std::string_view(label));
  for (const auto& [name, split] : description.splits) {
    hash.add(std::string_view(name));
    hash.add(std::uint64_t{split.files.size()});
    for (const auto& info : split.files) {
      const File file = File::open(folder / info.name);
      hash.add(file.header_bytes());
      hash.add(file.checksums());
    }
  }
  return std::string(kFingerprintStart) + hash.hex();
}

Description read_description(const std::filesystem::path& folder) {
  const auto path = folder / kDescriptionName;
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  if (error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory) {
    throw std::runtime_error(
        folder.string() + " has no " + std::string(kDescriptionName) +
        ": it is no prepared data, or unfinished; run the same `muster data prepare` again to go on");
  }
  if (error) throw std::system_error(error, "cannot read " + path.string());
  try {
    if (bytes > kMostBytes) throw std::runtime_error("it has " + std::to_string(bytes) + " bytes");
    return parse_description(base::read_small_file(path, bytes));
  } catch (const std::system_error&) {
    throw;  // it names the path, and preparing again is no remedy
  } catch (const std::runtime_error& fault) {
    throw std::runtime_error(path.string() + ": " + fault.what() + kRemedy);
  }
}

void write_description(const std::filesystem::path& folder, Description& description) {
  for (auto& [name, split] : description.splits) sum_up(folder, split);
  description.fingerprint = fingerprint_of(folder, description);
  const auto path = folder / kDescriptionName;
  try {
    description.text = text_of(json_of(description));
    parse_description(description.text);
  } catch (const std::runtime_error& fault) {
    throw std::runtime_error("cannot write " + path.string() + ": " + fault.what());
  }
  base::write_file_durably(path, description.text, 0644);
}

namespace {

std::string numbers(std::int64_t is, std::int64_t want) {
  return std::to_string(is) + ", and data.json says " + std::to_string(want);
}

/// Throws when the file is not the one that data.json names.
void check_file(const File& file, const FileInfo& want, const Description& description,
                const std::filesystem::path& path) {
  const auto fail = [&](const std::string& why) { throw std::runtime_error(path.string() + ": " + why + kRemedy); };
  const FileInfo is = file.info();
  if (file.kind() != description.kind) {
    fail("it holds " + std::string(name_of(file.kind())) + ", and data.json says " +
         std::string(name_of(description.kind)));
  }
  if (file.vocabulary() != description.vocabulary) {
    fail("its vocabulary is " + numbers(file.vocabulary(), description.vocabulary));
  }
  if (file.kind() != Kind::kImages && base::hex(file.tokenizer()) != description.tokenizer_sha256) {
    fail("it was made with the tokenizer " + base::hex(file.tokenizer()) + ", and data.json says " +
         description.tokenizer_sha256);
  }
  if (is.records != want.records) fail("its records are " + numbers(is.records, want.records));
  if (is.bytes != want.bytes || is.checksum != want.checksum) {
    fail("it is another file than the one that data.json describes");
  }
  const auto labels = static_cast<std::int64_t>(description.labels.size());
  for (std::int64_t record = 0; record < file.records(); ++record) {
    if (file.label(record) >= labels) {
      fail("record " + std::to_string(record) + " has the label " + std::to_string(file.label(record)) +
           ", and data.json names " + std::to_string(labels) + " labels");
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
