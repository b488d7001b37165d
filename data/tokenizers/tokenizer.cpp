#include "data/tokenizers/tokenizer.h"

#include <stdexcept>
#include <utility>

#include "base/checksum.h"
#include "base/durable_file.h"
#include "data/tokenizers/bytes.h"
#include "data/tokenizers/json_object.h"
#include "data/tokenizers/json_tokenizer.h"
#include "data/tokenizers/spm_options.h"

namespace data::tokenizers {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

std::shared_ptr<const Tokenizer> open_tokenizer_json(const fs::path& file) {
  std::string text = base::read_whole_file(file, format::most_bytes_of(file));
  const auto sha256 = base::sha256(text);
  return open_json({.file = file, .kind = "tokenizer.json", .sha256 = sha256, .text = std::move(text)});
}

/// The result of `work`. Errors of `work` get the file's path before them.
template <typename Work>
auto about(const fs::path& file, const Work& work) {
  try {
    return work();
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(file.string() + ": " + error.what());
  }
}

std::shared_ptr<const Tokenizer> open_model(const fs::path& file) {
  const std::string bytes = base::read_whole_file(file, format::most_bytes_of(file));
  const SpmModel model = about(file, [&] { return read_spm_model(bytes); });
  const SpmOptions options = spm_options(file, model);
  return open_json({.file = file, .kind = "sentencepiece", .sha256 = base::sha256(bytes), .text = about(file, [&] {
                                                                                            return tokenizer_json_of(
                                                                                                model, options);
                                                                                          })});
}

std::shared_ptr<const Tokenizer> open_file(const fs::path& file) {
  return format::is_sentencepiece(file) ? open_model(file) : open_tokenizer_json(file);
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
  if (!is_file(place)) {
    throw std::runtime_error(
        "\"" + path +
        "\": no such tokenizer; name a folder with tokenizer.json or tokenizer.model, such a file, or \"bytes\"");
  }
  return open_file(place);
}

}  // namespace data::tokenizers
