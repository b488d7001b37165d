#include "data/tokenizers/tokenizer.h"

#include <stdexcept>

#include "base/checksum.h"
#include "base/durable_file.h"
#include "data/tokenizers/json_tokenizer.h"
#include "data/tokenizers/spm_json.h"

namespace data::tokenizers {
namespace {

namespace fs = std::filesystem;

/// The result of `work`. Errors of `work` get the file's path before them.
template <typename Work>
auto about(const fs::path& file, const Work& work) {
  try {
    return work();
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(file.string() + ": " + error.what());
  }
}

/// A model of sentencepiece is opened as the tokenizer.json that gives the same ids.
std::shared_ptr<const Tokenizer> open_file(const fs::path& file) {
  JsonSource source{.file = file,
                    .kind = "tokenizer.json",
                    .sha256 = {},
                    .text = base::read_whole_file(file, format::most_bytes_of(file))};
  source.sha256 = base::sha256(source.text);
  if (format::is_sentencepiece(file)) {
    source.kind = "sentencepiece";
    const SpmModel model = about(file, [&] { return read_spm_model(source.text); });
    const SpmOptions options = spm_options(file, model);
    source.text = about(file, [&] { return tokenizer_json_of(model, options); });
  }
  return open_json(source);
}

}  // namespace

std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& path) {
  if (path == "bytes") return byte_tokenizer();
  const fs::path place = path;
  std::error_code ignored;
  if (fs::is_directory(place, ignored)) {
    if (const auto file = format::id_file_in(place)) return open_file(*file);
    throw std::runtime_error(path +
                             ": no tokenizer.json, tokenizer.model or spiece.model in this folder; name a folder that "
                             "transformers' save_pretrained() wrote, such a file, or \"bytes\"");
  }
  if (!fs::is_regular_file(place, ignored)) {
    throw std::runtime_error(
        "\"" + path +
        "\": no such tokenizer; name a folder with tokenizer.json or tokenizer.model, such a file, or \"bytes\"");
  }
  return open_file(place);
}

}  // namespace data::tokenizers
