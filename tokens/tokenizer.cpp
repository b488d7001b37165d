#include "tokens/tokenizer.h"

#include <stdexcept>
#include <utility>

#include "os/sha256.h"
#include "tokens/bytes.h"
#include "tokens/json_object.h"
#include "tokens/json_tokenizer.h"
#include "tokens/spm_options.h"

namespace tokens {
namespace {

namespace fs = std::filesystem;

// What transformers saves for a tokenizer, of whatever class.
constexpr std::array kFiles = {"tokenizer.json",
                               "tokenizer_config.json",
                               "special_tokens_map.json",
                               "added_tokens.json",
                               "tokenizer.model",
                               "spiece.model",
                               "vocab.json",
                               "merges.txt",
                               "vocab.txt",
                               "chat_template.jinja"};
constexpr std::uintmax_t kMaxJsonBytes = 256 << 20;  // the largest vocabularies of 2025 take 40 MB
constexpr std::uintmax_t kMaxModelBytes = 64 << 20;  // the largest models of 2025 have 5 MB
constexpr std::array kModels = {"tokenizer.model", "spiece.model"};

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

std::shared_ptr<const Tokenizer> open_tokenizer_json(const fs::path& file) {
  std::string text = read_whole(file, kMaxJsonBytes);
  const auto sha256 = os::sha256(text);
  return open_json({.file = file, .kind = "tokenizer.json", .sha256 = sha256, .text = std::move(text)});
}

/// What `work` gives. Its errors get the file's path before them.
template <typename Work>
auto about(const fs::path& file, const Work& work) {
  try {
    return work();
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(file.string() + ": " + error.what());
  }
}

std::shared_ptr<const Tokenizer> open_model(const fs::path& file) {
  const std::string bytes = read_whole(file, kMaxModelBytes);
  const SpmModel model = about(file, [&] { return read_spm_model(bytes); });
  const SpmOptions options = spm_options(file, model);
  return open_json({.file = file, .kind = "sentencepiece", .sha256 = os::sha256(bytes), .text = about(file, [&] {
                                                                                          return tokenizer_json_of(
                                                                                              model, options);
                                                                                        })});
}

}  // namespace

std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& path) {
  if (path == "bytes") return byte_tokenizer();
  const fs::path place = path;
  std::error_code ignored;
  if (fs::is_directory(place, ignored)) {
    if (is_file(place / "tokenizer.json")) return open_tokenizer_json(place / "tokenizer.json");
    for (const char* model : kModels) {
      if (is_file(place / model)) return open_model(place / model);
    }
    throw std::runtime_error(path +
                             ": no tokenizer.json, tokenizer.model or spiece.model in this folder; name a folder that "
                             "transformers' save_pretrained() wrote, such a file, or \"bytes\"");
  }
  if (!is_file(place)) {
    throw std::runtime_error(
        "\"" + path +
        "\": no such tokenizer; name a folder with tokenizer.json or tokenizer.model, such a file, or \"bytes\"");
  }
  if (place.extension() == ".model") return open_model(place);
  return open_tokenizer_json(place);
}

std::vector<fs::path> tokenizer_files(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const char* name : kFiles) {
    if (is_file(folder / name)) found.push_back(folder / name);
  }
  return found;
}

}  // namespace tokens
