#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "base/data_folder.h"
#include "base/loop.h"
#include "jobs/specs.h"

namespace jobs {

/// Sees whether anything comes out of attempts of which a hang is suspected: into the logs and reports of their ranks,
/// or into their checkpoint folder. Names, sizes and times of files are compared with what they were at the look
/// before, never with a clock.
///
/// The first look counts as output, for it cannot be known how old the files are. So does a look at a file system that
/// does not answer: an attempt is not ended for what nobody could see.
///
/// Thread-safe; one thread of its own. Without threads, set_suspected() looks itself.
class OutputWatch {
 public:
  static constexpr core::Millis kBetweenLooks{2000};

  /// `came_out` is called from the thread of this object for each attempt of which something came out.
  OutputWatch(SpecCache& specs, base::DataFolder data, std::function<void(const core::AttemptKey&)> came_out,
              bool threads);

  /// All attempts that are suspected now. Returns at once.
  void set_suspected(const std::vector<core::AttemptKey>& keys);
  /// Looks no more, and waits for the look under way.
  void close() { loop_.close(); }

 private:
  std::optional<core::Millis> look();
  std::optional<std::uint64_t> output_of(const core::AttemptKey& key);

  SpecCache& specs_;
  const base::DataFolder data_;
  const std::function<void(const core::AttemptKey&)> came_out_;
  const bool threads_;
  std::mutex mutex_;
  std::map<core::AttemptKey, std::optional<std::uint64_t>> suspected_;  // with the digest of the look before
  base::Loop loop_;
};

}  // namespace jobs
