#pragma once

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace base {

/// True if the process, or the machine, has no descriptor left.
inline bool lacks_descriptors(int error) {
  return error == EMFILE || error == ENFILE;
}

/// True if a file could not be made or written for want of room or of descriptors. Both come back sooner or later, so
/// what needs them waits, and nothing is charged to any budget. A read-only folder, a broken disk or a lost mount may
/// never heal: these are told.
inline bool lacks_room(int error) {
  return error == ENOSPC || error == EDQUOT || lacks_descriptors(error);
}

/// Replaces `path` as a whole: temporary file beside it, fsync, rename, fsync of the folder. After a crash at any point
/// the file is the old or the new one. Throws std::system_error that names the path.
void write_file_durably(const std::filesystem::path& path, std::string_view text, unsigned mode = 0600);

/// Replaces the file `name` in an open folder in the same way, with a temporary file of the name `temporary`. Two
/// writers must not share the temporary file. Throws std::system_error that names one of the two files.
void replace_file_at(int folder, const std::string& name, const std::string& temporary, std::string_view text);

/// Creates `path` with `mode` and durable contents; throws std::system_error with EEXIST, and writes nothing, if it is
/// there already. After a crash at any point it is whole or not there; the next call removes what is left beside it.
void create_file_durably(const std::filesystem::path& path, std::string_view text, unsigned mode);

/// The first `max_bytes` of the file, or those from `offset` on; empty text if there is none. Throws std::system_error
/// on anything else.
std::string read_small_file(const std::filesystem::path& path, std::size_t max_bytes = 1 << 16,
                            std::uintmax_t offset = 0);

/// The text of a regular file of at most `max_bytes`. Throws std::runtime_error that names the path and what is wrong:
/// no such file, more bytes, or what the kernel says.
std::string read_whole_file(const std::filesystem::path& path, std::uintmax_t max_bytes);

/// Waits until the names of the folder's files are on disk, after files were created or renamed in it. Throws
/// std::system_error that names the folder.
void sync_folder(const std::filesystem::path& folder);

/// Makes the folder and its parents. Throws std::system_error that names the path.
void make_folders(const std::filesystem::path& path);

/// Makes the folder as make_folders() does, and closes the folder itself to everybody but its owner and group: what
/// others write below it (Slurm's logs, programs) has a mode of their choosing.
void make_private_folder(const std::filesystem::path& path);

}  // namespace base
