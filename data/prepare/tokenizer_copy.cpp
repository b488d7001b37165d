#include "data/prepare/tokenizer_copy.h"

#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/durable_file.h"
#include "data/format/tokenizer_files.h"

namespace data::prepare {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostFileBytes = 512 << 20;
// It tells the class of a model of sentencepiece. Beside tokenizer.json it tells nothing of the tokenizer.
constexpr const char* kModelConfig = "config.json";

/// The name under which open_tokenizer() finds a file of any name in a folder.
std::string name_in_folder(const fs::path& file) {
  const auto name = file.filename().native();
  if (!format::is_sentencepiece(file)) return "tokenizer.json";
  return name == "spiece.model" ? name : "tokenizer.model";
}

bool is_equal(const tokenizers::Tokenizer& a, const tokenizers::Tokenizer& b) {
  return a.sha256() == b.sha256() && a.kind() == b.kind() && a.vocabulary() == b.vocabulary() &&
         a.prefix() == b.prefix() && a.suffix() == b.suffix() && a.special() == b.special();
}

/// The files of a tokenizer that was opened from `path`: where each is, and its name in a folder of its own.
std::vector<std::pair<fs::path, fs::path>> files_of(const std::string& path, const tokenizers::Tokenizer& tokenizer) {
  std::vector<std::pair<fs::path, fs::path>> files;
  if (tokenizer.kind() == "bytes") return files;
  const fs::path from = path;
  std::error_code ignored;
  const bool is_folder = fs::is_directory(from, ignored);
  const auto beside = is_folder ? from : from.parent_path();
  if (is_folder) {
    for (const auto& file : format::tokenizer_files(from)) files.emplace_back(file, file.filename());
  } else {
    files.emplace_back(from, name_in_folder(from));
    for (const auto& file : format::side_files_in(beside)) files.emplace_back(file, file.filename());
  }
  if (tokenizer.kind() == "sentencepiece" && fs::is_regular_file(beside / kModelConfig, ignored))
    files.emplace_back(beside / kModelConfig, kModelConfig);
  return files;
}

}  // namespace

std::string fingerprint_of_tokenizer(const std::string& path, const tokenizers::Tokenizer& tokenizer) {
  base::Sha256 hash;
  for (const auto& [from, name] : files_of(path, tokenizer)) {
    const auto bytes = base::read_small_file(from, kMostFileBytes);
    hash.add(name.native() + "\n" + std::to_string(bytes.size()) + "\n" + bytes);
  }
  return tokenizer.kind() + " " + base::hex(tokenizer.kind() == "bytes" ? tokenizer.sha256() : hash.digest());
}

void copy_tokenizer(const std::string& path, const tokenizers::Tokenizer& tokenizer, const fs::path& folder) {
  if (tokenizer.kind() == "bytes") return;
  const auto to = folder / format::kTokenizerFolder;
  base::make_folders(to);
  for (const auto& [from, name] : files_of(path, tokenizer)) {
    base::write_file_durably(to / name, base::read_small_file(from, kMostFileBytes), 0644);
  }
  if (!is_equal(*tokenizers::open_tokenizer(to.native()), tokenizer)) {
    throw std::system_error(EAGAIN, std::generic_category(),
                            "--tokenizer " + path + ": the copy in " + to.native() +
                                " is another tokenizer; did the files change meanwhile? run the same command again");
  }
}

std::shared_ptr<const tokenizers::Tokenizer> tokenizer_of(const fs::path& folder,
                                                          const format::Description& description) {
  if (description.tokenizer_kind == "bytes") return tokenizers::open_tokenizer("bytes");
  const auto place = folder / format::kTokenizerFolder;
  auto tokenizer = tokenizers::open_tokenizer(place.native());
  const auto sha256 = base::hex(tokenizer->sha256());
  if (sha256 != description.tokenizer_sha256) {
    throw std::runtime_error(place.native() + ": is another tokenizer (sha256 " + sha256.substr(0, 12) +
                             ") than that of data.json (" + description.tokenizer_sha256.substr(0, 12) +
                             "); prepare the data again");
  }
  return tokenizer;
}

}  // namespace data::prepare
