#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "data/text_source.h"

namespace worker {

/// The byte vocabulary. Tokens 0..255 are the text's bytes. kSeparatorToken follows each document.
inline constexpr std::uint16_t kSeparatorToken = 256;
inline constexpr std::int64_t kByteVocabulary = 257;

/// A memory-mapped file of tokens, read-only, so that processes can share it. Layout, little-endian: a header of 4096
/// bytes, then the tokens. The header holds the magic "MUSTTOKN", u32 version = 1, u32 dtype = 2 for uint16, u64
/// vocabulary size, u64 token count, u64 checksum of the tokens' bytes, u64 length of the source's description, and the
/// description.
class TokenFile {
 public:
  /// Maps the file and verifies all of it. Throws std::runtime_error naming the file and the fault.
  static TokenFile open(const std::string& path);

  /// Writes the source's tokens to a temporary file of this process, syncs it, and renames it to `path`. So readers see
  /// the whole file or none. Throws std::runtime_error naming path and cause.
  static void write(const std::string& path, const TextSource& source);

  TokenFile(TokenFile&& other) noexcept;
  TokenFile& operator=(TokenFile&& other) noexcept;
  ~TokenFile();

  std::span<const std::uint16_t> tokens() const { return tokens_; }
  std::int64_t vocabulary() const { return vocabulary_; }
  std::uint64_t checksum() const { return checksum_; }
  const std::string& description() const { return description_; }
  /// Identifies the tokens themselves, independent of their source.
  std::string fingerprint() const;
  /// Whether the file was made from a source with the same description.
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

/// The source's tokens from `cache_folder`, which is created if missing. The token file is written first if it is
/// missing, if it is damaged (with a warning on stderr), or if it was made from another text. Any number of processes
/// may start at once: one writes, and the others wait for it. Files that a killed writer left in the folder are
/// removed, unless their lock is held.
TokenFile open_or_build_tokens(const TextSource& source, const std::string& cache_folder);

/// The tokens with this fingerprint from `cache_folder`, from any source. The file of the source with this description
/// is tried first. Returns nullopt when no whole file in the folder holds the tokens. Damaged files cause a warning on
/// stderr.
std::optional<TokenFile> find_tokens(const std::string& fingerprint, const std::string& cache_folder,
                                     const std::string& description = "");

/// $XDG_CACHE_HOME/muster, or ~/.cache/muster, or a folder of this user in the system's temporary folder.
std::string default_cache_folder();

}  // namespace worker
