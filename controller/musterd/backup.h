#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "controller/core/job.h"
#include "controller/store/store.h"
#include "slurm/scheduler.h"

namespace musterd {

// musterd --backup and --restore: see [Note: backups] in controller/store/sqlite_backup.h. Both print on stdout.

/// Writes a backup of the data folder's store, with the people's token, whether a musterd runs on this machine or not.
/// Throws UsageError if one runs on another host, and store::Error.
void back_up(const std::filesystem::path& data_folder, const std::filesystem::path& file, bool with_metrics);

/// Puts a backup in the place of the data folder's store, and lists what Slurm has of this store that the backup does
/// not know. A token that is there stays. Throws UsageError, store::Error and std::system_error.
void restore(const std::filesystem::path& data_folder, const std::filesystem::path& file);

/// One line for each job of Slurm that is not over and has a comment of this store, but belongs to no open job of it.
/// Its ranks would run on without anybody. Pure, but for reading the store.
std::vector<std::string> strangers(const std::vector<slurm::ListedJob>& listed, store::Store& store);

}  // namespace musterd
