#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "data/prepare/progress.h"
#include "data/prepare/records.h"
#include "data/tokenizers/tokenizer.h"

namespace data::prepare {

// [Note: preparing] A source has numbered parts. Part NNNNN becomes train-NNNNN.mdat and, with a share for validation,
// validation-NNNNN.mdat. Both are a pure function of the options and the number, and are there as a whole or not at all
// (format::Writer). So a command that was killed at any point is taken up by the same command: it keeps parts that
// are there and whole, and makes the others. The number of threads changes no byte. data.json is written last; before
// it nothing reads the folder, so a damaged part may be made anew. After it no file changes.

/// How records are shared between the splits "train" and "validation".
struct SplitOptions {
  double validation = 0.05;  // share of the records; 0: there is no split "validation"
  std::uint64_t seed = 1;
};

/// True if record `number` of a part belongs to the split "validation". Depends on its arguments alone.
bool is_validation(const SplitOptions& options, std::int64_t part, std::int64_t number);

/// The data that prepare() makes.
struct Job {
  Records records;
  SplitOptions splits = {};
  std::filesystem::path folder = {};
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer = nullptr;  // null: images
  std::string tokenizer_path = {};
  std::string prefix_text = {};
  std::string made_by = {};  // "muster-data 0.1.0"
  int jobs = 1;              // threads
};

enum class Ended : std::uint8_t { kDone, kWasDone, kStopped };

/// Makes what is left to make in the folder; see [Note: preparing]. Once `stop` is not 0 it ends at the next record and
/// returns kStopped; the files that are finished stay. kWasDone: the folder was finished before, and nothing was done.
///
/// `say` gets lines for people: what was kept, what is made anew. Throws std::runtime_error naming place, finding and
/// remedy: from the source, for a folder of other options (named with both values) or of other files, for a source
/// without records, or with one record and a share for validation. Throws std::system_error when the disk refuses, and
/// for a folder that another process fills now.
Ended prepare(const Job& job, Progress& progress, const std::atomic<int>& stop);

/// The settings that decide about the bytes of a folder, as a JSON object: the options in data.json.
std::string options_of(const Job& job);

/// The folder of the cache for a job's data. Its name is made of options_of(job), so equal options have one folder.
std::filesystem::path folder_in_cache(const Job& job, const std::filesystem::path& cache);

/// Prepares as prepare() does, into folder_in_cache(), to which job.folder is set. Data that are there are read whole,
/// and used if they are whole; damaged data are made anew. Several processes may ask at once: one of them makes the
/// data, and the others wait for it. On a file system without locks each makes the data, and the first one's are used.
/// A cache that takes no writes is enough for data that are there. Throws as prepare(), and std::system_error where the
/// system refuses.
Ended prepare_in_cache(Job& job, const std::filesystem::path& cache, Progress& progress, const std::atomic<int>& stop);

}  // namespace data::prepare
