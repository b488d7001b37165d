#include "worker/train/model_tokenizer.h"

#include <filesystem>
#include <stdexcept>

#include "base/durable_file.h"
#include "base/sha256.h"
#include "base/usage_error.h"
#include "data/format/tokenizer_files.h"

namespace worker {
namespace {

namespace fs = std::filesystem;

ModelTokenizer read_tokenizer(const std::string& key, const std::string& path, const fs::path& file) {
  try {
    const auto sha256 = base::sha256(base::read_whole_file(file, data::format::most_bytes_of(file)));
    return {path, data::format::is_sentencepiece(file) ? "sentencepiece" : "tokenizer.json", base::hex(sha256)};
  } catch (const std::runtime_error& error) {
    throw base::UsageError(key + " = \"" + path + "\": " + error.what());
  }
}

}  // namespace

std::optional<ModelTokenizer> tokenizer_of(const RunConfig& config) {
  const std::string& wanted = config.data_options.tokenizer;
  if (wanted == "bytes") return ModelTokenizer{wanted, wanted, base::hex(base::sha256(data::format::kBytesIdentity))};
  if (!wanted.empty()) {
    std::error_code ignored;
    const auto file =
        fs::is_regular_file(wanted, ignored) ? std::optional(fs::path(wanted)) : data::format::id_file_in(wanted);
    if (!file) {
      throw base::UsageError(
          "data.tokenizer = \"" + wanted +
          "\": there is no tokenizer.json, tokenizer.model or spiece.model; give such a file, its folder, "
          "or bytes");
    }
    return read_tokenizer("data.tokenizer", wanted, *file);
  }
  const std::string pretrained = config.values.text("model.pretrained");
  const auto file = pretrained.empty() ? std::nullopt : data::format::id_file_in(pretrained);
  return file ? std::optional(read_tokenizer("model.pretrained", pretrained, *file)) : std::nullopt;
}

}  // namespace worker
