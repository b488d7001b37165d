#include "base/torn_save.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <set>
#include <system_error>
#include <tuple>

#include "base/fd.h"
#include "base/numbers.h"
#include "base/words.h"

namespace base {

namespace fs = std::filesystem;

namespace {

constexpr std::array<std::string_view, 11> kStepWords{
    "step", "steps", "iter", "iters", "iteration", "iterations", "update", "updates", "ba", "globalstep", "gs"};
constexpr std::array<std::string_view, 6> kCheckpointWords{"checkpoint", "checkpoints", "ckpt",
                                                           "ckpts",      "chkpt",       "snapshot"};
constexpr std::array<std::string_view, 5> kModelWords{"model", "weights", "weight", "state", "save"};
constexpr std::array<std::string_view, 3> kEpochWords{"epoch", "epochs", "ep"};
constexpr std::array<std::string_view, 19> kPartWords{"rank", "ranks",  "shard", "part", "split",  "chunk", "piece",
                                                      "data", "mp",     "tp",    "pp",   "dp",     "node",  "worker",
                                                      "gpu",  "device", "host",  "proc", "process"};

template <std::size_t N>
bool is_one(const std::array<std::string_view, N>& words, const std::string& word) {
  return std::ranges::find(words, word) != words.end();
}

constexpr std::string_view kDigits = "0123456789";

/// The digits that end at `end`.
std::string_view digits_before(std::string_view text, std::size_t end) {
  text = text.substr(0, end);
  return text.substr(text.find_last_not_of(kDigits) + 1);
}

std::string_view digits_from(std::string_view text, std::size_t begin) {
  text = text.substr(std::min(begin, text.size()));
  return text.substr(0, text.find_first_not_of(kDigits));
}

/// The word that `text` ends with, without "-", "_", "=" and "." behind it.
std::string_view last_word(std::string_view text) {
  text = text.substr(0, text.find_last_not_of("-_=. ") + 1);
  auto begin = text.size();
  while (begin > 0 && std::isalpha(static_cast<unsigned char>(text[begin - 1])) != 0) --begin;
  return text.substr(begin);
}

NumberOf::IsPart judge(const NumberOf& of, std::string_view digits) {
  using enum NumberOf::IsPart;
  if (of.number > of.count || of.count < 1) return kNo;
  switch (number_word(last_word(of.before))) {
    case NumberWord::kStep:
    case NumberWord::kEpoch:
      return kNo;
    case NumberWord::kPart:
      return kYes;
    case NumberWord::kCheckpoint:
      return kIfListed;
    case NumberWord::kModel:
    case NumberWord::kOf:
    case NumberWord::kOther:
      break;
  }
  const bool padded = of.count_text.front() == '0' && of.count_text.size() == digits.size();
  return padded && of.count < kMostParts ? kYes : kIfListed;
}

constexpr std::string_view kZipBegin("PK\3\4", 4), kZipEnd("PK\5\6", 4);
constexpr std::size_t kZipEndBytes = 22, kMostComment = 65'535;
constexpr std::size_t kMostHeader = 16 << 20;

/// A regular file that is open for reading.
struct File {
  Fd fd;
  std::uint64_t size = 0;
};

std::optional<File> open_file(const fs::path& path) {
  // A pipe of that name would be waited for.
  File file{Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)), 0};
  struct stat status {};
  if (!file.fd || ::fstat(file.fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  file.size = static_cast<std::uint64_t>(status.st_size);
  return file;
}

std::string read_at(const File& file, std::uint64_t offset, std::size_t bytes) {
  std::string text(std::min<std::uint64_t>(bytes, file.size - std::min(offset, file.size)), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const auto count =
        ::pread(file.fd.get(), text.data() + done, text.size() - done, static_cast<off_t>(offset + done));
    if (count == 0 || (count < 0 && errno != EINTR)) break;
    if (count > 0) done += static_cast<std::size_t>(count);
  }
  text.resize(done);
  return text;
}

/// The record at a zip archive's end holds the length of the comment behind it.
bool has_zip_end(const File& file) {
  const auto bytes = std::min<std::uint64_t>(file.size, kZipEndBytes + kMostComment);
  const auto end = read_at(file, file.size - bytes, bytes);
  for (auto at = end.rfind(kZipEnd); at != std::string::npos; at = at == 0 ? at - 1 : end.rfind(kZipEnd, at - 1)) {
    if (at + kZipEndBytes > end.size()) continue;
    const auto low = static_cast<unsigned char>(end[at + 20]), high = static_cast<unsigned char>(end[at + 21]);
    if (at + kZipEndBytes + low + 256U * high == end.size()) return true;
  }
  return false;
}

/// How many bytes a .safetensors file has by its own header; nullopt: the header cannot be read.
std::optional<std::uint64_t> safetensors_bytes(const File& file) {
  std::uint64_t header_bytes = 0;
  const auto first = read_at(file, 0, sizeof header_bytes);
  if (first.size() < sizeof header_bytes) return sizeof header_bytes;
  std::memcpy(&header_bytes, first.data(), sizeof header_bytes);
  if (header_bytes > kMostHeader) return std::nullopt;
  const auto header = read_at(file, sizeof header_bytes, header_bytes);
  std::uint64_t data = 0;
  constexpr std::string_view kOffsets = "\"data_offsets\":[";
  for (auto at = header.find(kOffsets); at != std::string::npos; at = header.find(kOffsets, at + 1)) {
    const auto comma = header.find(',', at);
    if (comma == std::string::npos) break;
    std::uint64_t end = 0;
    std::from_chars(header.data() + comma + 1, header.data() + header.size(), end);
    data = std::max(data, end);
  }
  return sizeof header_bytes + header_bytes + data;
}

/// Files of these names have formats whose end is known.
constexpr std::array<std::string_view, 6> kPickles{".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib"};
/// Files of these names hold weights or states, so an empty one is none. Ranks of torch.distributed.checkpoint that
/// have nothing to save leave an empty .distcp file.
constexpr std::array<std::string_view, 9> kNeverEmpty{".bin",  ".safetensors", ".npz",     ".npy", ".h5",
                                                      ".hdf5", ".keras",       ".msgpack", ".gguf"};

/// True if a file that begins so is a pickle and nothing else: a pickle ends with its STOP, a dot. torch.save without
/// an archive writes the weights behind pickles, of which the first is its magic number.
bool is_bare_pickle(std::string_view head) {
  constexpr std::string_view kMagic("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e", 15);
  if (head.size() < 2 || head[0] != '\x80' || head[1] < 2 || head[1] > 5) return false;
  return !head.starts_with(kMagic);
}

/// Why one file is a save that was cut off, beginning with the file's name; empty: nothing shows that. Reads the file's
/// head, which of .safetensors may be long, and its last 64 KiB.
std::string why_file_is_torn(const fs::path& path) {
  const auto file = open_file(path);
  if (!file) return {};
  const auto name = path.filename().string();
  const auto extension = lower_case(path.extension().string());
  const bool may_be_pickle = std::ranges::find(kPickles, extension) != kPickles.end();
  if (file->size == 0) {
    const bool never = may_be_pickle || std::ranges::find(kNeverEmpty, extension) != kNeverEmpty.end();
    return never ? name + " is empty" : std::string();
  }
  if (extension == ".safetensors") {
    const auto wanted = safetensors_bytes(*file);
    if (!wanted || *wanted <= file->size) return {};
    return name + " has " + std::to_string(file->size) + " of " + std::to_string(*wanted) + " bytes";
  }
  const auto head = read_at(*file, 0, 16);
  const bool is_zip = head.starts_with(kZipBegin) || (may_be_pickle && kZipBegin.starts_with(head));
  if (is_zip) return has_zip_end(*file) ? std::string() : name + " has no end";
  if (!may_be_pickle || !is_bare_pickle(head) || read_at(*file, file->size - 1, 1) == ".") return {};
  return name + " is a pickle without its end";
}

/// The contents of one folder.
class Folder {
 public:
  void add(const std::string& name) {
    names_.insert(name);
    if (name.ends_with(".distcp")) has_distcp_ = true;
    const auto of = number_of(name);
    if (!of || of->is_part == NumberOf::IsPart::kNo) return;
    auto& parts = parts_[{of->before, of->after, of->count_text}];
    parts.there.insert(of->number);
    parts.all = of->count;
    parts.is_sure = parts.is_sure || of->is_part == NumberOf::IsPart::kYes;
  }

  std::string why_torn() const {
    // Without a collective each rank writes its own, "__0.metadata".
    const bool has_metadata = std::ranges::any_of(names_, [](const auto& name) { return name.ends_with(".metadata"); });
    if (has_distcp_ && !has_metadata) return "there is no .metadata, which is written last";
    const bool of_trainer = names_.contains("training_args.bin") && names_.contains("optimizer.pt");
    if (of_trainer && !names_.contains("trainer_state.json")) {
      return "there is no trainer_state.json, which is written last";
    }
    for (const auto& [name, parts] : parts_) {
      if (!is_missing_some(name, parts)) continue;
      return std::to_string(parts.there.size()) + " of " + std::to_string(parts.all) + " parts are there";
    }
    return {};
  }

 private:
  /// The parts of one file, by numbers from 0 or from 1.
  struct Parts {
    std::set<std::int64_t> there;
    std::int64_t all = 0;
    bool is_sure = false;
    bool is_whole() const { return static_cast<std::int64_t>(there.size()) >= all; }
  };
  using PartsName = std::tuple<std::string, std::string, std::string>;  // before, after, and the count

  /// "model.safetensors.index.json" lists the parts "model-00001-of-00003.safetensors".
  bool has_index(const PartsName& name) const {
    auto stem = std::get<0>(name);
    while (stem.ends_with('-') || stem.ends_with('_') || stem.ends_with('.')) stem.pop_back();
    return std::ranges::any_of(names_, [&](const auto& other) {
      return other.starts_with(stem) && other.ends_with(".json") && other.find(".index.") != std::string::npos;
    });
  }

  bool is_missing_some(const PartsName& name, const Parts& parts) const {
    if (parts.is_whole() || (!parts.is_sure && !has_index(name))) return false;
    // Parts of another number may be left of an earlier save.
    return std::ranges::none_of(parts_, [&](const auto& other) {
      return std::get<0>(other.first) == std::get<0>(name) && std::get<1>(other.first) == std::get<1>(name) &&
             other.second.is_whole();
    });
  }

  std::set<std::string> names_;
  bool has_distcp_ = false;
  std::map<PartsName, Parts> parts_;
};

/// The files below a folder, at most `most`; empty: there are more, or none.
std::vector<std::string> files_below(const fs::path& folder, std::size_t most) {
  std::vector<std::string> files;
  std::error_code error;
  constexpr auto kOptions = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator entry(folder, kOptions, error), end; !error && entry != end;
       entry.increment(error)) {
    if (most-- == 0) return {};
    std::error_code none;
    if (entry->is_regular_file(none)) files.push_back(entry->path().lexically_relative(folder).string());
  }
  return files;
}

/// The file, or with it the other parts of the save that it is a part of; empty: there are too many names beside it.
std::vector<std::string> parts_beside(const fs::path& file, std::size_t most) {
  const auto name = file.filename().string();
  const auto own = number_of(name);
  if (!own || own->is_part == NumberOf::IsPart::kNo) return {name};
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator entry(file.parent_path(), error), end; !error && entry != end; entry.increment(error)) {
    if (most-- == 0) return {};
    auto other = entry->path().filename().string();
    const auto of = number_of(other);
    const bool is_beside = of && of->before == own->before && of->after == own->after;
    if (is_beside || other.find(".index.") != std::string::npos) files.push_back(std::move(other));
  }
  return files;
}

}  // namespace

NumberWord number_word(std::string_view text) {
  const auto word = lower_case(text);
  if (is_one(kStepWords, word)) return NumberWord::kStep;
  if (is_one(kCheckpointWords, word)) return NumberWord::kCheckpoint;
  if (is_one(kModelWords, word)) return NumberWord::kModel;
  if (is_one(kEpochWords, word)) return NumberWord::kEpoch;
  if (is_one(kPartWords, word)) return NumberWord::kPart;
  return word == "of" ? NumberWord::kOf : NumberWord::kOther;
}

std::optional<NumberOf> number_of(std::string_view name) {
  for (auto of = name.rfind("of"); of != std::string_view::npos && of > 0; of = name.rfind("of", of - 1)) {
    const auto is_gap = [&](std::size_t at) { return at < name.size() && (name[at] == '-' || name[at] == '_'); };
    if (of < 2 || !is_gap(of - 1) || !is_gap(of + 2)) continue;
    const auto number = digits_before(name, of - 1), count = digits_from(name, of + 3);
    const auto number_value = whole_number<std::int64_t>(number), count_value = whole_number<std::int64_t>(count);
    if (!number_value || !count_value) continue;
    NumberOf found;
    found.before = name.substr(0, of - 1 - number.size());
    found.after = name.substr(of + 3 + count.size());
    found.number = *number_value;
    found.count = *count_value;
    found.count_text = count;
    found.is_part = judge(found, number);
    return found;
  }
  return std::nullopt;
}

std::string why_torn(const fs::path& root, const std::vector<std::string>& files, std::size_t most) {
  std::map<fs::path, Folder> folders;
  std::uintmax_t bytes = 0;
  std::size_t looked_at = 0;
  for (const auto& name : files) {
    if (looked_at == most) return {};
    const auto path = root / name;
    std::error_code error;
    const auto size = fs::file_size(path, error);
    if (error) continue;  // gone meanwhile
    bytes += size;
    ++looked_at;
    folders[path.parent_path()].add(path.filename().string());
    if (auto why = why_file_is_torn(path); !why.empty()) return why;
  }
  for (const auto& [name, folder] : folders) {
    if (auto why = folder.why_torn(); !why.empty()) return why;
  }
  return looked_at > 0 && bytes == 0 ? "it is empty" : std::string();
}

std::string why_torn(const std::string& path, std::size_t most) {
  std::error_code error;
  if (fs::is_directory(path, error)) return why_torn(fs::path(path), files_below(path, most), most);
  if (!fs::is_regular_file(path, error)) return {};
  const auto files = parts_beside(path, most);
  return files.empty() ? why_file_is_torn(path) : why_torn(fs::path(path).parent_path(), files, most);
}

}  // namespace base
