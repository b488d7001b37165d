#include "fsdp/files/checkpoint_folder.h"

#include <sys/stat.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "fsdp/files/checkpoint.h"

namespace fsdp {

namespace fs = std::filesystem;

namespace {

std::string padded(const char* format, std::int64_t a, std::int64_t b = 0) {
  char text[96];
  std::snprintf(text, sizeof text, format, static_cast<long long>(a), static_cast<long long>(b));
  return text;
}

}  // namespace

std::string step_name(std::int64_t step) {
  return padded("step-%08lld", step);
}

std::string file_name(int rank, int world_size) {
  return padded("rank-%05lld-of-%05lld.safetensors", rank, world_size);
}

std::optional<std::int64_t> number_after(std::string_view text, std::string_view mark) {
  const auto at = text.rfind(mark);
  if (at == std::string_view::npos) return {};
  const char* first = text.data() + at + mark.size();
  const char* last = text.data() + text.size();
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(first, last, number);
  if (error != std::errc() || end != last || first == last || number < 0) return {};
  return number;
}

void fail(const std::string& text) {
  throw CheckpointError(text);
}

std::string read_text(const fs::path& path, std::int64_t limit) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error) fail("no " + path.filename().string());
  if (static_cast<std::int64_t>(bytes) > limit) fail(path.filename().string() + " is larger than any manifest");
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) fail("cannot read " + path.filename().string());
  return text.str();
}

std::optional<Identity> identity_of(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return {};
  return Identity{info.st_dev, info.st_ino};
}

void withdraw_folder(const fs::path& from, const fs::path& to, const fs::path& before,
                     const std::optional<Identity>& own) {
  if (identity_of(to) != own) return;
  if (before == from) {
    if (!exchange(from, to)) fail("cannot put back " + to.string() + ": " + std::strerror(errno));
    if (identity_of(from) != own) exchange(from, to);
    return;
  }
  fs::rename(to, from);
  if (identity_of(from) != own) {
    fs::rename(from, to);
  } else if (!before.empty()) {
    fs::rename(before, to);
  }
}

}  // namespace fsdp
