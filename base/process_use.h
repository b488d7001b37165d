#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/process_table.h"

namespace base {

/// The resources that a group of processes uses.
struct ProcessUse {
  /// CPU time over time since the look before: 1.7 is 1.7 cores. Absent at the first look.
  std::optional<double> cores;
  std::int64_t memory_bytes = 0;
  std::int64_t memory_peak_bytes = 0;  // the most that a look has seen
  std::uint32_t processes = 0;
};

/// Measures one program with all that it has started: its process group, its children with theirs, and what it was
/// seen to start and has lost since (a daemon). Not thread-safe.
///
/// CPU time. A process that has ended takes its time with it, and who has waited for it has that time from then on.
/// What was counted before is taken off there, so nothing is counted twice and nothing is negative. The last moments
/// of a process that nobody of the group waits for are not seen.
///
/// Memory. Of one process: its resident memory. Of several: the sum of their proportional memory (Pss), where a page
/// that n processes share counts as 1/n. Workers that a loader has forked share nearly all of theirs. Pss takes the
/// kernel a walk over all pages, so it is read for at most kPssShare of the time; in between it is taken to be the same
/// part of the resident memory.
class ProcessUseMeter {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr int kPssShare = 100;  // one hundredth

  /// `proc`: where processes show.
  ProcessUseMeter(std::int64_t pid, std::filesystem::path proc = "/proc");

  /// `all`: every process now. nullopt: nothing is left of the program.
  std::optional<ProcessUse> look(const std::vector<ProcessStat>& all, Time now);
  /// The processes of the newest look.
  const std::vector<std::int64_t>& pids() const { return pids_; }

 private:
  /// A process that cannot be mistaken for a later one with the same id.
  using Key = std::pair<std::int64_t, std::uint64_t>;
  struct Seen {
    std::int64_t parent = 0;
    std::int64_t own_ticks = 0, waited_ticks = 0;
    double proportion = 1;  // Pss over resident memory
    Time pss_again{};
  };
  using Group = std::map<Key, Seen>;

  std::vector<const ProcessStat*> members(const std::vector<ProcessStat>& all) const;
  std::int64_t ticks_since(const Group& now) const;
  std::int64_t memory_of(const std::vector<const ProcessStat*>& group, Group& seen, Time now) const;
  void read_proportion(const ProcessStat& process, Seen& seen) const;

  const std::int64_t pid_;
  const std::filesystem::path proc_;
  Group seen_;  // at the newest look
  std::optional<Time> looked_at_;
  std::int64_t peak_ = 0;
  std::vector<std::int64_t> pids_;
};

}  // namespace base
