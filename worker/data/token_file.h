#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "data/text_source.h"

namespace worker {

/// The byte vocabulary: tokens 0..255 are the text's bytes, kSeparatorToken stands after each document.
inline constexpr std::uint16_t kSeparatorToken = 256;
inline constexpr std::int64_t kByteVocabulary = 257;

/// A memory-mapped file of tokens. Layout, little-endian: a header of 4096 bytes (magic "MUSTTOKN", u32 version = 1,
/// u32 dtype = 2 for uint16, u64 vocabulary size, u64 token count, u64 checksum of the tokens' bytes, u64 length of the
/// source's description, the description), then the tokens. Read-only and shareable between processes.
class TokenFile {
 public:
  /// Maps the file and verifies all of it. Throws std::runtime_error that says what is wrong with which file.
  static TokenFile open(const std::string& path);

  /// Writes the source's tokens to a temporary name of this process, syncs, and renames it to `path`: readers see all
  /// of it or nothing. Throws std::runtime_error that names path and cause.
  static void write(const std::string& path, const TextSource& source);

  TokenFile(TokenFile&& other) noexcept;
  TokenFile& operator=(TokenFile&& other) noexcept;
  ~TokenFile();

  std::span<const std::uint16_t> tokens() const { return tokens_; }
  std::int64_t vocabulary() const { return vocabulary_; }
  std::uint64_t checksum() const { return checksum_; }
  const std::string& description() const { return description_; }
  /// Names the tokens themselves, whichever source they came from.
  std::string fingerprint() const;
  /// Whether it was made from a source of this description.
  bool made_from(const TextSource& source) const;

 private:
  TokenFile() = default;

  void* map_ = nullptr;
  std::size_t map_bytes_ = 0;
  std::span<const std::uint16_t> tokens_;
  std::int64_t vocabulary_ = 0;
  std::uint64_t checksum_ = 0;
  std::string description_;
};

/// The source's tokens out of `cache_folder` (created if missing), written first if there is no such file, it is
/// damaged (said on stderr), or it was made from another text. Safe when any number of processes start at once: one
/// writes, the others wait for it. What a killed writer has left in the folder is removed, unless its lock is held.
/// Throws std::runtime_error as TokenFile does.
TokenFile open_or_build_tokens(const TextSource& source, const std::string& cache_folder);

/// The tokens of this fingerprint out of `cache_folder`, from whatever source they came, that of this description
/// first; nothing when no whole file there holds them. A damaged one is told of on stderr.
std::optional<TokenFile> find_tokens(const std::string& fingerprint, const std::string& cache_folder,
                                     const std::string& description = "");

/// $XDG_CACHE_HOME/muster, or ~/.cache/muster, or a folder of this user's in the temporary folder.
std::string default_cache_folder();

}  // namespace worker
