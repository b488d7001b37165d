#pragma once

#include <atomic>
#include <filesystem>

#include "data/prepare/prepare_job.h"
#include "data/prepare/progress.h"

namespace data::prepare {

/// The folder of the cache for a job's data. Its name is made of options_of(job), so equal options have one folder.
std::filesystem::path folder_in_cache(const Job& job, const std::filesystem::path& cache);

/// Prepares as prepare() does, into folder_in_cache(), to which job.folder is set. Data that are there are read whole,
/// and used if they are whole; damaged data are made anew. Several processes may ask at once: one of them makes the
/// data, and the others wait for it. On a file system without locks each makes the data, and the first one's are used.
/// A cache that takes no writes is enough for data that are there. Throws as prepare(), and std::system_error where the
/// system refuses.
Ended prepare_in_cache(Job& job, const std::filesystem::path& cache, Progress& progress, const std::atomic<int>& stop);

}  // namespace data::prepare
