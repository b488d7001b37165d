#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <iosfwd>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cli/client.h"
#include "muster/v1/job.pb.h"

namespace cli {

struct LogOptions {
  std::int64_t job = 0;
  std::uint32_t attempt = 0;  // 0: the newest; with follow, also later ones
  std::optional<std::uint32_t> rank = {};
  bool slurm = false;      // print Slurm's log, not the ranks' logs
  std::uint32_t tail = 0;  // 0: all lines
  bool follow = false;
  bool json = false;
  bool timestamps = false;  // print before each line when it was seen
  bool tell_empty = false;  // say on stderr if the log is empty
};

/// The terminal on which two threads print: a log, and words that are said while the log is quiet.
class SharedScreen {
 public:
  /// Prints at once.
  void print(const std::function<void()>& write) {
    const std::lock_guard lock(mutex_);
    write();
    last_ = Clock::now();
  }
  /// Prints if nothing was printed for this long. Returns false if something was.
  bool print_if_quiet(std::chrono::seconds time, const std::function<void()>& write) {
    const std::lock_guard lock(mutex_);
    if (Clock::now() - last_ < time) return false;
    write();
    last_ = Clock::now();
    return true;
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::mutex mutex_;
  Clock::time_point last_ = Clock::now();
};

/// Prints a job's log lines to `out`. If there are several ranks, each line begins with its rank, unless it does so
/// itself. A new attempt is announced on stderr. After a lost connection the log goes on where it stopped.
/// With a `screen`, other threads may print meanwhile.
StreamEnd print_logs(Client& client, const LogOptions& options, std::ostream& out, SharedScreen* screen = nullptr);

/// If the newest attempt ran on Slurm and failed before any rank had a process: the last lines of Slurm's log of it,
/// safe for a terminal. Empty: another attempt, or the log cannot be read.
std::vector<std::string> slurm_words(Client& client, const muster::v1::Job& job);

/// How to read Slurm's log of the newest attempt: its path, or a command if the path is not known; empty: there is no
/// such log.
std::string slurm_log_place(const muster::v1::Job& job);

/// Estimates how long a training will go on, from the steps that were seen lately. The caller passes the time.
class TimeLeft {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Notes the job as it is now. A new attempt, or an earlier step than before, restarts the estimate.
  void see(const muster::v1::Job& job, Time now);
  /// The time until the last step. nullopt: the job is not in training, its last step is not known, or no step was
  /// seen. Before two steps were seen, the ranks' newest step time is used.
  std::optional<std::chrono::milliseconds> left() const;

 private:
  static constexpr std::chrono::seconds kWindow{120};
  static constexpr std::size_t kMostSamples = 1000;
  struct Sample {
    Time at;
    std::int64_t step;
  };
  std::deque<Sample> samples_;
  std::uint32_t attempt_ = 0;
  std::int64_t total_ = 0;
  double step_ms_ = 0;  // the step time of the slowest rank
  bool trains_ = false;
};

/// The line of a training on a terminal of `width` columns, which is drawn over itself: a bar, then what line_of()
/// says. A longer line would wrap, and the next one would not cover it. So where there is no room the bar is left out,
/// and then all but step, loss and the time left. Wants steps_total above 0.
std::string bar_line(const muster::v1::Job& job, const TimeLeft& left, std::size_t width);

bool is_ended(const muster::v1::Job& job);

/// Says on stderr when the job is suspected of something, and when it no longer is.
std::function<void(const muster::v1::Job&)> tell_suspicions();

/// Waits until the job has ended, even if the connection is lost in between. Calls `on_change` with the job at once and
/// after each change. After kComplete `last` is the ended job.
StreamEnd wait_for_end(Client& client, std::int64_t job, muster::v1::Job* last,
                       std::optional<Contact::Clock::time_point> deadline = std::nullopt,
                       const std::function<void(const muster::v1::Job&)>& on_change = tell_suspicions());

/// The job's state and reason: "failed: rank 1 exited with 2". A reason that begins with the state stands alone:
/// "cancelled by ada".
std::string outcome_text(const muster::v1::Job& job);

/// The numbers of an ended job: "2 attempts, step 150/150, loss 2.585, took 27s; checkpoints in /...".
std::string summary_text(const muster::v1::Job& job);

/// Prints on stderr how the job ended and where to look. If no rank has started, prints the end of Slurm's log too. If
/// `end` is not kComplete, says that the job goes on. Returns the exit code.
int tell_end(Client& client, StreamEnd end, std::int64_t id, const muster::v1::Job& job);

/// Shows a job on stderr until it has ended, and then how it ended: the output of a command, or the progress of a
/// training. While a program that reports prints nothing for ten seconds, its steps are told. Progress is a bar on a
/// terminal, and otherwise lines. A line comes when something happens, after every ten seconds, and after every tenth
/// of the steps. Returns the exit code.
int follow(Client& client, const muster::v1::JobSpec& spec, std::int64_t id);

}  // namespace cli
