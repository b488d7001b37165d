#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "controller/common/data_folder.h"
#include "controller/common/loop.h"
#include "controller/jobs/output_scan.h"
#include "controller/jobs/specs.h"

namespace jobs {

/// Where an attempt's output may grow: the logs and reports of its ranks, its checkpoint folder, and the places that
/// [report] names. Of a path with wildcards, or with variables that musterd does not know, it is the folder above the
/// first of them, and there the names that hold what stands before it.
std::vector<OutputPlace> output_places(const muster::v1::JobSpec& spec, const core::AttemptKey& key,
                                       const common::DataFolder& data);

/// Sees whether anything comes out of attempts that are suspected, at their output_places(). OutputScan has
/// the rules. What counts as output, too, is a look at a file system that does not answer, and one that has to wait for
/// others: an attempt is not ended for what nobody could see.
///
/// Thread-safe; one thread of its own. Without threads, set_suspected() looks itself.
class OutputWatch {
 public:
  static constexpr core::Millis kBetweenLooks{2000};
  /// Walks that may be under way at once, for each holds open folders.
  static constexpr std::size_t kMostWalks = 16;

  /// `came_out` is called from the thread of this object for each attempt of which something came out.
  OutputWatch(SpecCache& specs, common::DataFolder data, std::function<void(const core::AttemptKey&)> came_out,
              bool threads);

  /// All attempts that are suspected now. Returns at once.
  void set_suspected(const std::vector<core::AttemptKey>& keys);
  /// Looks no more, and waits for the look under way.
  void close() { loop_.close(); }

 private:
  /// One for each place. A look that a file system holds up goes on by itself, so it shares the scan.
  using Scans = std::vector<std::pair<OutputPlace, std::shared_ptr<OutputScan>>>;

  std::optional<core::Millis> look();
  bool may_have_come_out(const core::AttemptKey& key, Scans& scans, std::size_t& walks);

  SpecCache& specs_;
  const common::DataFolder data_;
  const std::function<void(const core::AttemptKey&)> came_out_;
  const bool threads_;
  std::mutex mutex_;
  std::map<core::AttemptKey, Scans> suspected_;
  common::Loop loop_;
};

}  // namespace jobs
