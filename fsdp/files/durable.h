#pragma once
#include <filesystem>
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

/// Exchanges two names in one step. Returns false where the file system cannot, with the cause in errno.
bool exchange(const std::filesystem::path& a, const std::filesystem::path& b);
/// Renames `from` to `to`, in one step where the file system can exchange names. Returns the path of the folder that
/// was at `to` before, or an empty path if none was.
std::filesystem::path publish_folder(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace fsdp
