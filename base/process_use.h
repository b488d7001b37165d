#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace base {

/// The facts that the kernel tells of one process at one moment.
struct ProcessLook {
  std::int64_t pid = 0;
  std::int64_t parent = 0;
  std::int64_t group = 0;
  std::uint64_t start_time = 0;   // clock ticks since boot
  std::int64_t own_ticks = 0;     // CPU time of all its threads
  std::int64_t waited_ticks = 0;  // CPU time of its children that have ended and that it has waited for, and of theirs
  std::int64_t resident_pages = 0;
};

/// Reads a /proc/<pid>/stat line. nullopt: the line makes no sense.
std::optional<ProcessLook> parse_look(std::string_view stat_line);
/// Pss of a /proc/<pid>/smaps_rollup, in bytes. nullopt: it has none.
std::optional<std::int64_t> parse_proportional(std::string_view smaps_rollup);
/// Every process below `proc`, in one pass. A process that ends meanwhile is left out. Throws std::system_error when
/// the folder cannot be read.
std::vector<ProcessLook> look_at_processes(const std::filesystem::path& proc);

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
  std::optional<ProcessUse> look(const std::vector<ProcessLook>& all, Time now);
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

  std::vector<const ProcessLook*> members(const std::vector<ProcessLook>& all) const;
  std::int64_t ticks_since(const Group& now) const;
  std::int64_t memory_of(const std::vector<const ProcessLook*>& group, Group& seen, Time now) const;
  void read_proportion(const ProcessLook& process, Seen& seen) const;

  const std::int64_t pid_;
  const std::filesystem::path proc_;
  Group seen_;  // at the newest look
  std::optional<Time> looked_at_;
  std::int64_t peak_ = 0;
  std::vector<std::int64_t> pids_;
};

}  // namespace base
