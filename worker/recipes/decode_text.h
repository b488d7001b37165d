#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace worker {

/// The text of a tokenizer's ids, without special tokens. Thread-safe.
using DecodeText = std::function<std::string(const std::vector<std::int64_t>& ids)>;

/// `path` is "bytes" for the byte vocabulary, or a folder with a tokenizer's files; see data/tokenizers/tokenizer.h.
/// Throws base::UsageError naming the path, what is wrong with it, and the remedy. A build without the library of
/// tokenizers knows bytes alone.
DecodeText decode_text_of(const std::string& path);

}  // namespace worker
