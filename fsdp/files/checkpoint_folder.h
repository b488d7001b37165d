#pragma once
// The files and folders of checkpoints: names, and the withdrawal of a folder.
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "fsdp/files/durable.h"

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
/// Throws CheckpointError when there is no such file, or it has more than `limit` bytes.
std::string read_text(const std::filesystem::path& path, std::int64_t limit);

/// Identifies the folder behind a name. Another attempt may have renamed its own folder to that name.
struct Identity {
  ::dev_t device = 0;
  ::ino_t inode = 0;
  bool operator==(const Identity&) const = default;
};
std::optional<Identity> identity_of(const std::filesystem::path& path);

/// Undoes publish_folder(from, to), which returned `before`. `own` is at `from` again afterwards. A newer attempt may
/// replace the folder at any moment, even between two lines of this function. The newer attempt's folder then stays at
/// `to`.
void withdraw_folder(const std::filesystem::path& from, const std::filesystem::path& to,
                     const std::filesystem::path& before, const std::optional<Identity>& own);

}  // namespace fsdp
