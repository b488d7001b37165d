#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agent/rank/reporter.h"
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

/// Says to a reporter what the lines of one rank's report file mean, in the order of the file: what a line leaves out
/// follows from the lines before it. docs/report.md has the rules. Not thread-safe.
class Teller {
 public:
  /// Tells all but words().
  void tell(const watch::Report& report, rank::Reporter& to);
  /// The words of the program about itself up to now.
  const rank::ProgramWords& words() const { return words_; }
  /// The newest step that the program has told.
  std::optional<std::int64_t> newest_step() const {
    return last_step_ ? std::optional(last_step_->first) : std::nullopt;
  }

 private:
  void declare(const std::vector<spec::Series>& series, rank::Reporter& to);
  void step(const watch::Report& report, rank::Reporter& to);
  void enter(rank::Section section, rank::Reporter& to);
  void enter(const std::string& name, rank::Reporter& to);
  double step_ms_since_last(std::int64_t step, std::int64_t at_ms) const;

  std::vector<spec::Series> series_;
  rank::Section section_ = rank::Section::kInit;
  rank::ProgramWords words_;
  std::optional<std::pair<std::int64_t, std::int64_t>> last_step_;  // its number, and when it was done
};

/// Connects a rank to the controller. Called once, when the rank's program has reported something.
using Connect = std::function<std::unique_ptr<rank::Reporter>()>;

/// Follows the report file of one rank, and the other sources that its job names, and tells the controller what it
/// says, with the rank's heartbeats. A program that writes no report is never heard of here. Lines that cannot be read
/// are counted, and the first is quoted.
///
/// Reports that the controller has not taken yet stay in the files: no more is read before what was read is told, and
/// nothing is told that would cost the reporter an older report. So a burst of any size is told whole, and costs
/// bounded memory.
///
/// A thread of its own reads and tells, so neither a disk nor the controller ever holds up who owns the relay. A read
/// that the disk holds up goes on by itself; what it brings is told when it comes.
class Relay {
 public:
  /// Between two looks at the file: at first and after news, and at most.
  static constexpr std::chrono::milliseconds kLook{200}, kLookAtMost{2'000};
  /// And while the reporter has no room, and while a source is known to have more to read.
  static constexpr std::chrono::milliseconds kLookForRoom{20}, kLookForMore{50};
  /// How long the last reports delay the news of the rank's end: kQuietEnd of a program that has reported nothing. Of
  /// one that has reported, until all is told, as long as the controller has taken some within kStands, or
  /// kStandsLong after exit code 0, when no other rank hangs because of this one; and kLongestEnd at the most.
  /// After the news, finish() waits as long as the controller has taken some within kStandsLong.
  static constexpr std::chrono::milliseconds kQuietEnd{500}, kStands{900}, kStandsLong{10'000};
  static constexpr std::chrono::minutes kLongestEnd{2};

  /// Throws std::system_error if no thread can be started.
  Relay(std::filesystem::path file, Connect connect, Sources sources = {});
  /// Reads no further. It waits until the reporter has told what it has, or kept it, as the reporter's limits say.
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  /// The rank's program has ended: what its file still holds is told, and that the rank leaves.
  void ended(spec::ExitStatus exit);
  /// Waits until that is done, at most until `until`. False: it is not.
  bool wait(std::chrono::steady_clock::time_point until);
  /// Waits as wait() does, and no longer than the news of the rank's end may be held back for it. True: tell that news.
  bool wait_before_end(std::chrono::steady_clock::time_point until);
  /// After ended(): waits as long as the controller takes what is left, until `until` at most, and then gives up.
  /// Returns what was left out, in one sentence; empty: nothing.
  std::string finish(std::chrono::steady_clock::time_point until);

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;
  void run();
  /// Until then the news of the end is held back, as far as is known now.
  Clock::time_point end_is_due() const;
  /// Until then the controller may still take something, as far as is known now.
  Clock::time_point stands_until(std::chrono::milliseconds stands) const;
  void quit();
  /// The reports that the disk has brought by now; nullopt: the disk has not answered yet.
  std::optional<watch::Found> read(bool ended);
  /// One look at the file. True: all is told that the program has written before its end.
  bool look(const std::optional<spec::ExitStatus>& exit);
  void complain_once();
  /// Adds to what was read, and tells of it what the reporter has room for. True: all.
  bool tell(std::vector<watch::Report> reports);
  void connect_once();
  /// Notes whether the controller has taken reports since the last turn.
  void note_taken();
  void tell_words(bool blind);
  /// Tells that not all was told, and that the rank leaves.
  void give_up(const spec::ExitStatus& exit);
  void leave(const spec::ExitStatus& exit);

  const Connect connect_;
  const std::shared_ptr<watch::ReportTail> tail_;  // shared with a read that the disk holds up
  std::future<watch::Found> reading_;
  bool reading_began_ended_ = false;  // the program had ended when reading_ began
  Sources sources_;
  bool has_news_ = false, has_more_ = false, waits_for_room_ = false, complained_ = false;
  std::deque<watch::Report> untold_;  // read, and not told yet
  bool untold_is_own_ = false;        // of the report file; else of the other sources
  bool own_is_told_ = false;          // the report file, to its end after the program's end
  std::size_t backlog_ = 0;           // the reporter's, a turn ago
  std::unique_ptr<rank::Reporter> reporter_;
  Teller teller_;
  std::uint64_t bad_lines_ = 0;
  std::string first_bad_line_;
  rank::ProgramWords told_words_;

  std::atomic<bool> has_told_ = false;

  std::string left_out_;  // written before done_
  std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<spec::ExitStatus> exit_;
  Clock::time_point ended_at_{}, taken_at_{};  // the rank's end; when the controller was last known to take reports
  bool quit_ = false, done_ = false;
  std::thread thread_;
};

}  // namespace agent::report
