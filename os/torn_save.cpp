#include "os/torn_save.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>

#include "os/fd.h"

namespace os {
namespace {

namespace fs = std::filesystem;

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

std::string why_file_is_torn(const fs::path& path) {
  const auto file = open_file(path);
  if (!file || file->size == 0) return {};
  if (path.extension() == ".safetensors") {
    const auto wanted = safetensors_bytes(*file);
    if (!wanted || *wanted <= file->size) return {};
    return path.filename().string() + " has " + std::to_string(file->size) + " of " + std::to_string(*wanted) +
           " bytes";
  }
  if (read_at(*file, 0, kZipBegin.size()) != kZipBegin || has_zip_end(*file)) return {};
  return path.filename().string() + " has no end";
}

/// The parts of one file, "model-00001-of-00003.safetensors".
struct Parts {
  std::set<std::int64_t> there;
  std::int64_t all = 0;
};

std::int64_t number_before(std::string_view text, std::size_t end, std::size_t& begin) {
  begin = end;
  while (begin > 0 && text[begin - 1] >= '0' && text[begin - 1] <= '9') --begin;
  std::int64_t number = -1;
  std::from_chars(text.data() + begin, text.data() + end, number);
  return number;
}

/// What is in one folder.
class Folder {
 public:
  void add(const std::string& name) {
    names_.insert(name);
    if (name.ends_with(".distcp")) has_distcp_ = true;
    constexpr std::string_view kOf = "-of-";
    const auto of = name.rfind(kOf);
    if (of == std::string::npos) return;
    std::size_t begin = 0;
    const auto part = number_before(name, of, begin);
    const auto after = of + kOf.size();
    std::int64_t all = -1;
    const auto [stop, error] = std::from_chars(name.data() + after, name.data() + name.size(), all);
    if (part < 0 || error != std::errc() || all < 1 || all > 100'000) return;
    auto& parts = parts_[name.substr(0, begin) + std::string(stop, name.data() + name.size())];
    parts.there.insert(part);
    parts.all = std::max(parts.all, all);
  }
  std::string why_torn() const {
    if (has_distcp_ && !names_.contains(".metadata")) return "there is no .metadata, which is written last";
    const bool of_trainer = names_.contains("training_args.bin") && names_.contains("optimizer.pt");
    if (of_trainer && !names_.contains("trainer_state.json")) {
      return "there is no trainer_state.json, which is written last";
    }
    for (const auto& [name, parts] : parts_) {
      if (static_cast<std::int64_t>(parts.there.size()) >= parts.all) continue;
      return std::to_string(parts.there.size()) + " of " + std::to_string(parts.all) + " parts are there";
    }
    return {};
  }

 private:
  std::set<std::string> names_;
  bool has_distcp_ = false;
  std::map<std::string, Parts> parts_;
};

}  // namespace

std::string why_torn(const std::string& path, std::size_t most) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return why_file_is_torn(path);
  std::map<fs::path, Folder> folders;
  constexpr auto kOptions = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator entry(path, kOptions, error), end; !error && entry != end;
       entry.increment(error)) {
    if (most-- == 0) return {};
    folders[entry->path().parent_path()].add(entry->path().filename().string());
    std::error_code none;
    if (!entry->is_regular_file(none)) continue;
    if (auto why = why_file_is_torn(entry->path()); !why.empty()) return why;
  }
  for (const auto& [name, folder] : folders) {
    if (auto why = folder.why_torn(); !why.empty()) return why;
  }
  return {};
}

}  // namespace os
