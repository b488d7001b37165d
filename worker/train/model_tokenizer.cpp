#include "train/model_tokenizer.h"

#include <array>
#include <fstream>
#include <sstream>

#include "os/sha256.h"
#include "rank/errors.h"

namespace worker {
namespace {

namespace fs = std::filesystem;

/// What the ids depend on, the first that is there.
constexpr auto kModels = std::to_array<const char*>({"tokenizer.json", "tokenizer.model", "spiece.model"});
/// What goes with it.
constexpr auto kBeside = std::to_array<const char*>(
    {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt", "vocab.json", "merges.txt"});

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

std::optional<fs::path> model_in(const fs::path& folder) {
  for (const char* name : kModels) {
    if (is_file(folder / name)) return folder / name;
  }
  return std::nullopt;
}

ModelTokenizer read_tokenizer(const std::string& key, const std::string& path, const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream bytes;
  bytes << in.rdbuf();
  if (!in) throw UsageError(key + " = \"" + path + "\": cannot read " + file.native());
  const bool is_json = file.extension() == ".json";
  return {path, is_json ? "tokenizer.json" : "sentencepiece", os::hex(os::sha256(bytes.str()))};
}

}  // namespace

std::optional<ModelTokenizer> tokenizer_of(const RunConfig& config) {
  const std::string& wanted = config.data_options.tokenizer;
  if (wanted == "bytes") return ModelTokenizer{wanted, wanted, os::hex(os::sha256("muster bytes 1"))};
  if (!wanted.empty()) {
    const auto file = is_file(wanted) ? std::optional(fs::path(wanted)) : model_in(wanted);
    if (!file) {
      throw UsageError("data.tokenizer = \"" + wanted +
                       "\": there is no tokenizer.json, tokenizer.model or spiece.model; give such a file, its folder, "
                       "or bytes");
    }
    return read_tokenizer("data.tokenizer", wanted, *file);
  }
  const std::string pretrained = config.values.text("model.pretrained");
  const auto file = pretrained.empty() ? std::nullopt : model_in(pretrained);
  return file ? std::optional(read_tokenizer("model.pretrained", pretrained, *file)) : std::nullopt;
}

std::vector<fs::path> files_of_tokenizer(const fs::path& folder) {
  std::vector<fs::path> files;
  if (!model_in(folder)) return files;
  for (const char* name : kModels) {
    if (is_file(folder / name)) files.push_back(folder / name);
  }
  for (const char* name : kBeside) {
    if (is_file(folder / name)) files.push_back(folder / name);
  }
  return files;
}

}  // namespace worker
