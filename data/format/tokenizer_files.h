#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

// The files of a tokenizer in a folder of transformers. The standard library alone, because a worker that is built
// without tokenizers reads this header, too.
namespace data::format {

/// The files that give the ids. The first one that a folder has counts.
inline constexpr auto kIdFiles = std::to_array<std::string_view>({"tokenizer.json", "tokenizer.model", "spiece.model"});
/// The files that transformers saves beside such a file, for tokenizers of any class.
inline constexpr auto kSideFiles =
    std::to_array<std::string_view>({"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                                     "chat_template.jinja", "vocab.json", "merges.txt", "vocab.txt"});

constexpr std::uintmax_t kMostJsonBytes = 256 << 20;          // the largest tokenizer.json of 2025 has 40 MB
constexpr std::uintmax_t kMostSentencepieceBytes = 64 << 20;  // the largest models of 2025 have 5 MB

/// The SHA-256 of this text stands for the byte vocabulary, which has no file.
inline constexpr std::string_view kBytesIdentity = "muster bytes 1";

/// True if a file that gives the ids is a model of sentencepiece. Any other one is a tokenizer.json.
inline bool is_sentencepiece(const std::filesystem::path& file) {
  return file.extension() == ".model";
}

/// The most bytes that a file that gives the ids may have.
inline std::uintmax_t most_bytes_of(const std::filesystem::path& file) {
  return is_sentencepiece(file) ? kMostSentencepieceBytes : kMostJsonBytes;
}

/// The file of a folder that gives the ids; nullopt: there is none.
inline std::optional<std::filesystem::path> id_file_in(const std::filesystem::path& folder) {
  std::error_code ignored;
  for (const auto name : kIdFiles)
    if (std::filesystem::is_regular_file(folder / name, ignored)) return folder / name;
  return std::nullopt;
}

/// The files of kSideFiles in a folder.
inline std::vector<std::filesystem::path> side_files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  std::error_code ignored;
  for (const auto name : kSideFiles)
    if (std::filesystem::is_regular_file(folder / name, ignored)) found.push_back(folder / name);
  return found;
}

/// The files of a tokenizer in a folder, for a copy beside data and exports. Empty if there are none.
inline std::vector<std::filesystem::path> tokenizer_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  std::error_code ignored;
  for (const auto name : kIdFiles)
    if (std::filesystem::is_regular_file(folder / name, ignored)) found.push_back(folder / name);
  for (auto& file : side_files_in(folder)) found.push_back(std::move(file));
  return found;
}

}  // namespace data::format
