#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fsdp/files/checkpoint.h"
#include "fsdp/files/safetensors.h"
#include "fsdp/text/json.h"

// A checkpoint's folder besides its tensors: names of folders and files, and the manifest.

namespace fsdp {

inline constexpr const char* kManifest = "manifest.json";
inline constexpr const char* kStepPrefix = "step-";
inline constexpr const char* kAttemptMark = "-attempt-";
/// Begins the keys of CheckpointState::rank_tensors, so no part may have that name.
inline constexpr const char* kRankTensors = "rank";

/// "step-00000100".
std::string step_name(std::int64_t step);
/// "rank-00000-of-00002.safetensors".
std::string file_name(int rank, int world_size);
/// The number that follows the last `mark` and ends the text, if any.
std::optional<std::int64_t> number_after(std::string_view text, std::string_view mark);

/// Throws CheckpointError.
[[noreturn]] void fail(const std::string& text);

/// The member of a small JSON file that holds the checksum of the file's text.
inline constexpr const char* kOwnSum = "crc32c";

/// The text of `value`, an object without the member kOwnSum. The text begins with {"crc32c": "1a2b3c4d", where the
/// eight digits are the CRC-32C of all bytes that follow that comma, to the end of the file. It is JSON. So a changed
/// digit, which no parser can see, is found.
std::string summed_text(const Json& value);

/// One rank's saved part of a tensor: elements [begin, begin + length) of the flattened tensor.
struct SavedSlice {
  int rank;
  std::int64_t begin;
  std::int64_t length;
};

struct SavedTensor {
  std::vector<std::int64_t> shape;
  bool trainable = true;   // the optimizer has states of it
  std::int64_t steps = 0;  // optimizer updates of this tensor
  std::vector<SavedSlice> slices;
};

struct SavedOptimizer {
  std::string name;
  std::int64_t steps = 0;
  std::vector<std::string> states;
};

struct SavedPart {
  /// Prefix of the part's keys in the files of ranks: "model/", or "" in version 1.
  std::string prefix;
  std::optional<SavedOptimizer> optimizer;
  std::map<std::string, SavedTensor> tensors;
  std::int64_t left_out = 0;  // parameters of the model that were not saved
};

/// The checksums (CRC-32C) of one rank's file.
struct SavedSums {
  std::int64_t bytes = 0;
  std::optional<std::uint32_t> whole;  // of the whole file; versions 1 and 2 alone
  std::int64_t header_bytes = 0;       // before the tensors' bytes
  std::uint32_t header = 0;
  std::int64_t block_bytes = 0;
  std::vector<std::uint32_t> blocks;  // the last block may be shorter
};

/// The parts by name. Throws CheckpointError or JsonError for a manifest that no load could follow. Reads all versions.
/// Version 1 holds the one part "model", with AdamW.
std::map<std::string, SavedPart> parse_parts(const Json& manifest);

/// The manifest without its list of files. `attempt` is the one that writes.
Json make_manifest(const std::vector<CheckpointPart>& parts, const CheckpointState& state, std::int64_t attempt);

/// The manifest's entry of a rank's file.
Json json_of(const std::string& name, const WrittenFile& written);
/// Reads that entry. Throws CheckpointError or JsonError for sums that fit no file.
SavedSums parse_sums(const Json& manifest, int rank);

/// Reads the manifest of a checkpoint and compares the sizes of its files. Throws for one that is not whole.
CheckpointInfo inspect(const std::filesystem::path& path, std::int64_t step);

}  // namespace fsdp
