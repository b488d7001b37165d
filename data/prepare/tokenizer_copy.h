#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/format/dataset.h"
#include "data/tokenizers/tokenizer.h"

namespace data::prepare {

/// Recognises the tokenizer that was opened from `path` by everything that it is used by: its kind, and the bytes of
/// the files that copy_tokenizer() copies.
std::string fingerprint_of_tokenizer(const std::string& path, const tokenizers::Tokenizer& tokenizer);

/// Copies the files of the tokenizer that was opened from `path` to `folder`/tokenizer, and opens the copy. Bytes have
/// no files. Throws std::system_error when the disk refuses, and naming the path if the copy is another tokenizer,
/// because the files have changed meanwhile.
void copy_tokenizer(const std::string& path, const tokenizers::Tokenizer& tokenizer,
                    const std::filesystem::path& folder);

/// The tokenizer of prepared data. Throws std::runtime_error naming the folder if it is not that of data.json.
std::shared_ptr<const tokenizers::Tokenizer> tokenizer_of(const std::filesystem::path& folder,
                                                          const format::Description& description);

}  // namespace data::prepare
