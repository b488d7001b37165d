#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "controller/core/job.h"
#include "controller/store/store.h"

namespace musterd {

/// The identity and location of a data folder.
///
/// [Note: a copy of a data folder]
/// A copy of a data folder holds the same store. Its jobs have the same store name in Slurm's comments, so two daemons
/// would end each other's jobs. A lock does not help, since each copy has its own lock. So the store remembers where it
/// was opened last, and compares:
/// - It is the same folder if inode, time of birth and file system are the same, and also the path or the device. A
///   renamed folder keeps its inode and device. A second head node that takes over a shared folder sees the same path
///   and inode. The device alone proves nothing: its number may change with each start of the machine, and differs
///   between the machines that mount a shared folder.
/// - Anything else may be a copy. cp, rsync and a restored backup give another inode. A snapshot that is mounted
///   elsewhere has the same inode, but another path and device. A copy onto its own disk, mounted at the same path, has
///   another birth or file system; its inode may be the same, since the root folders of all disks of one kind have the
///   same inode.
/// The id of a file system is known for ext4 only, where it follows from the UUID. Other file systems get a new id at
/// each mount. Where birth and id are not known (NFS), inode and path alone decide. Two cases are not recognised: a
/// machine that was cloned as a whole, and a volume that was copied block by block and mounted at the same path of
/// another machine.
struct Place {
  std::string path;  // without symbolic links
  std::string host;
  std::uint64_t device = 0, inode = 0;
  std::int64_t birth_ns = 0;  // when the folder was created, since 1970; 0: not known
  std::uint64_t fs_id = 0;    // the file system's lasting id; 0: not known
  bool operator==(const Place&) const = default;
};

/// Throws std::runtime_error if the folder cannot be read.
Place place_of(const std::filesystem::path& data_folder);

/// See [Note: a copy of a data folder].
bool is_same_folder(const Place& known, const Place& now);

enum class Relocation {
  kNone,   // neither flag was given
  kMoved,  // --moved: the same controller in a moved folder
  kFork,   // --fork: the folder is a copy, and becomes a separate controller
};

/// Checks that the store belongs to `data_folder`, and stores the folder's place. An older store without a place gets
/// this one. Throws UsageError and changes nothing if the folder may be a copy and `relocation` is kNone, or if it is
/// kFork and the folder is no copy.
///
/// A fork gets a new store name. It cancels the jobs that have not ended, in its own records only, and drops their
/// pending actions, so that it never touches the original's processes. A crash in between leaves a store that refuses
/// to start without a flag, as before.
void settle(store::Store& store, const std::filesystem::path& data_folder, Relocation relocation, core::Time now);

}  // namespace musterd
