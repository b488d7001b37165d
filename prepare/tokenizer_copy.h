#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "prepared/description.h"
#include "tokens/tokenizer.h"

namespace prepare {

/// The folder of the tokenizer's files beside data.json.
inline constexpr const char* kTokenizerFolder = "tokenizer";

/// Copies the files of the tokenizer that was opened from `path` to `folder`/tokenizer, and opens the copy. Bytes have
/// no files. Throws std::runtime_error naming the path if the copy is another tokenizer, and std::system_error when the
/// disk refuses.
void copy_tokenizer(const std::string& path, const tokens::Tokenizer& tokenizer, const std::filesystem::path& folder);

/// The tokenizer of prepared data. Throws std::runtime_error naming the folder if it is not that of data.json.
std::shared_ptr<const tokens::Tokenizer> tokenizer_of(const std::filesystem::path& folder,
                                                      const prepared::Description& description);

}  // namespace prepare
