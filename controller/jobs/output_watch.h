#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "controller/common/data_folder.h"
#include "controller/common/loop.h"
#include "controller/jobs/specs.h"

namespace jobs {

/// Where an attempt's output may grow.
struct OutputPlace {
  std::filesystem::path folder;
  std::string part;  // names at its top without this text are left out; empty: all of them count
  bool operator==(const OutputPlace&) const = default;
};

/// Tells whether anything below a place grows or changes: files of any name, and folders. Names, sizes and times are
/// compared with what they were at the walk before, never with a clock. Left out are folders of experiment trackers,
/// which write statistics of the machine by themselves while a training hangs, and what links to folders lead to.
///
/// One look takes kMostAtOnce entries or kLongestLook, and the next one goes on where it ended. So a large folder needs
/// several looks for a walk:
///
///   the first walk ends: unknown -- a walk found nothing --> quiet; of several looks: only two such walks are
///   quiet -- a walk found a change --> unknown
///
/// The second walk makes good for what changes behind a look: what changes once in any time T counts once in T at
/// least, however long a walk takes. Holds one open folder for each level while a walk is under way. Not thread-safe.
class OutputScan {
 public:
  static constexpr std::size_t kMostAtOnce = 20'000;
  static constexpr std::chrono::milliseconds kLongestLook{1'000};
  static constexpr std::size_t kDeepest = 24;

  explicit OutputScan(OutputPlace place, std::size_t most_at_once = kMostAtOnce)
      : place_(std::move(place)), most_at_once_(most_at_once) {}

  /// True: something may have come out since the look before. A folder that is not there, or may not be read, is empty.
  bool look();
  bool is_under_way() const { return !way_.empty(); }

 private:
  void enter(const std::filesystem::path& folder);
  bool walk();
  void take_entry(const std::filesystem::directory_entry& entry);

  const OutputPlace place_;
  const std::size_t most_at_once_;
  std::vector<std::filesystem::directory_iterator> way_;  // from the top to where the walk stands
  std::uint64_t digest_ = 0;                              // of this walk so far
  int looks_ = 0;                                         // of this walk so far
  std::optional<std::uint64_t> before_;                   // of the last whole walk
  int quiet_walks_ = 0;                                   // one after the other; two say it all
};

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
