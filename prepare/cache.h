#pragma once

#include <atomic>
#include <filesystem>

#include "prepare/job.h"
#include "prepare/progress.h"

namespace prepare {

/// As prepare(), into a folder of the cache whose name is made of options_of(job), so that equal options have one
/// folder. Sets job.folder to it. Data that are there are read whole, and used if they are whole; damaged data are made
/// anew. Several processes may ask at once: one of them makes the data, and the others wait for it. Throws as
/// prepare().
Ended prepare_in_cache(Job& job, const std::filesystem::path& cache, Progress& progress, const std::atomic<int>& stop);

}  // namespace prepare
