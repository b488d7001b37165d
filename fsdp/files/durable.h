#pragma once
#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>

namespace fsdp {

/// Files and folders that are whole or absent after a crash. Failures are c10::Errors that name the path.

/// A file or folder that is being written has a name that begins so, and is renamed when it is whole.
inline constexpr const char* kTemporaryPrefix = ".tmp-";

/// Flushes a file or folder to disk. `flags` open it.
void sync_path(const std::filesystem::path& path, int flags);
/// Flushes the folders above `path` to disk, up to the root, so that the names on the way to it survive a power cut.
/// Leaves out those that this process may not open and those that cannot be flushed.
void sync_parents(const std::filesystem::path& path);
/// Writes a text and flushes it to disk.
void write_text(const std::filesystem::path& path, const std::string& text);

/// Renames `from` to `to`, in one step where the file system can exchange names. Returns the path of the folder that
/// was at `to` before, or an empty path if none was.
std::filesystem::path publish_folder(const std::filesystem::path& from, const std::filesystem::path& to);

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
