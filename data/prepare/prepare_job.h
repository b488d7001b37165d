#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/fd.h"
#include "data/prepare/progress.h"
#include "data/prepare/splits.h"
#include "data/tokenizers/tokenizer.h"

namespace data::prepare {

/// The folder that a command fills. While it is unfinished it holds `.work/options.json`, what the command was asked
/// for, and `.work/lock`, which its process holds. Then data.json has the options, and `.work` is gone.
class WorkFolder {
 public:
  /// Makes the folder, or takes up one that a command with the same options has begun or finished. `options`: a JSON
  /// object. Throws std::runtime_error naming folder, finding and remedy: a folder of other options (named with both
  /// values), or of other files. Throws std::system_error when the disk refuses, and for a folder that another process
  /// fills now.
  WorkFolder(std::filesystem::path folder, const std::string& options);

  /// True if data.json is there: nothing is left to do.
  bool is_finished() const { return is_finished_; }
  /// True if an earlier command has begun the folder.
  bool is_begun() const { return is_begun_; }

  /// Removes `.work`, if it can, after data.json is written.
  void finish();

 private:
  void lock();
  void check_options(const std::string& found, const std::string& wanted) const;

  const std::filesystem::path folder_;
  base::Fd lock_;
  bool is_finished_ = false, is_begun_ = false;
};

// [Note: preparing] A source has numbered parts. Part NNNNN becomes train-NNNNN.mdat and, with a share for validation,
// validation-NNNNN.mdat. Both are a pure function of the options and the number, and are there as a whole or not at all
// (format::Writer). So a command that was killed at any point is taken up by the same command: it keeps parts that
// are there and whole, and makes the others. The number of threads changes no byte. data.json is written last; before
// it nothing reads the folder, so a damaged part may be made anew. After it no file changes.

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
/// remedy: from the source, for a folder of other options (WorkFolder), for a source without records, or with one
/// record and a share for validation.
Ended prepare(const Job& job, Progress& progress, const std::atomic<int>& stop);

/// The settings that decide about the bytes of a folder, as a JSON object: the options in data.json.
std::string options_of(const Job& job);

}  // namespace data::prepare
