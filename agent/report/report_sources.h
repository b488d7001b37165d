#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/watch/report.h"
#include "spec/exit_codes.h"
#include "spec/report_keys.h"
#include "spec/variables.h"

namespace agent::report {

/// The sources that one rank's agent looks at besides the rank's report file.
///
/// Each source is read in a thread of its own, so a disk that stands still holds up neither the caller nor the other
/// sources. A look that it holds up goes on by itself; what it brings comes later. Not thread-safe.
class Sources {
 public:
  using Clock = std::chrono::steady_clock;

  Sources() = default;
  explicit Sources(std::vector<std::shared_ptr<watch::ReportSource>> sources, const std::string& trouble = {});

  /// The first look, before the program starts: what is there by then is old. Waits for disks until then at most.
  void begin(Clock::time_point until);

  /// Begins a look at each source that has none under way. `end`: how the program has ended; nullopt: it runs.
  void start(const std::optional<spec::ExitStatus>& end, std::optional<std::int64_t> newest_step);
  /// Returns the reports that the disks have brought by `until`.
  watch::Found take(Clock::time_point until);
  /// After the program's end: all that it has written is taken.
  bool is_done() const;
  /// Nothing more is read, and `untold` reports that were read are not told. Returns what was left out, in one sentence
  /// which is also trouble(), unless there was another before; empty: nothing.
  std::string give_up(std::size_t untold);
  /// The first trouble with one of the sources, in one sentence; empty: none.
  const std::string& trouble() const { return trouble_; }

 private:
  struct Watched {
    std::shared_ptr<watch::ReportSource> source;  // shared with a look that the disk holds up
    std::future<watch::Found> looking = {};
    bool began_ended = false;  // the program had ended when `looking` began
    bool is_done = false;
  };
  void complain(const std::string& about);

  std::vector<Watched> all_;
  std::string trouble_;
};

/// Where the reports of a rank are looked for.
struct SourcesPlace {
  std::uint32_t rank = 0;
  std::filesystem::path log;
  std::string working_folder;
  spec::Environment environment;  // the rank's, whose variables a path may hold
};

/// The sources that [report] of a job file names. Patterns are read from each rank's log. Checkpoints and event files
/// are looked for beside rank 0 alone. A path with a variable that is not set is left out, and is trouble().
Sources make_sources(const spec::ReportSources& wanted, const SourcesPlace& place);

}  // namespace agent::report
