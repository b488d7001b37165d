#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/types.h"
#include "store/store.h"

namespace musterd {

/// Where a data folder is.
///
/// [Note: a copy of a data folder]
/// A copy of a folder holds the same store, and so the same name of it in Slurm's comments: two daemons would end each
/// other's jobs. A lock does not help, for each has its own. So a store knows the place it was opened at last:
/// - The folder's inode, time of birth and file system are the same, and its path or its device: it is the same folder.
/// Device numbers are given anew
///   at each start of the machine and by each machine that mounts a shared folder, so they alone prove nothing; a
///   folder that was renamed keeps its inode on the same device. A second head node that takes over a shared folder
///   sees the same path and inode.
/// - Anything else may be a copy: other inodes (cp, rsync, a restored backup), the same inode at another path and
///   device (a snapshot that is mounted elsewhere), or the same inode of another birth or file system (a copy onto a
///   disk of its own that is mounted at the same path: the topmost folders of all disks have one inode).
/// A file system's id is that of ext4, which follows from its UUID: others give another one at each mount. Where
/// neither is told (NFS), inode and path alone decide. Not told apart: a machine that was cloned as a whole, and a
/// volume that was copied block by block and mounted at the same path of another machine.
struct Place {
  std::string path;  // without symbolic links
  std::string host;
  std::uint64_t device = 0, inode = 0;
  std::int64_t birth_ns = 0;  // of the folder, since 1970; 0: not known
  std::uint64_t fs_id = 0;    // of its file system, as long as that lives; 0: not known
  bool operator==(const Place&) const = default;
};

/// Throws std::runtime_error if the folder can't be looked at.
Place place_of(const std::filesystem::path& data_folder);

/// See [Note: a copy of a data folder].
bool is_same_folder(const Place& known, const Place& now);

enum class Relocation {
  kNone,   // nobody has said anything
  kMoved,  // --moved: the same controller at a new place
  kFork,   // --fork: a copy, which is to be a controller of its own
};

/// Makes the store at home in `data_folder`, and keeps the place. A store without a place (older ones) takes this one.
/// Throws UsageError, with nothing changed, if it may be a copy and nobody has said what it is to be, or if a store
/// that is at home is to be forked.
///
/// A fork gets a new name. Jobs that have not ended are cancelled in its records and everything that was to be done for
/// them is dropped, so that nothing of the original is ever touched. A crash on the way leaves a store that refuses to
/// start, as before.
void settle(store::Store& store, const std::filesystem::path& data_folder, Relocation relocation, core::Time now);

}  // namespace musterd
