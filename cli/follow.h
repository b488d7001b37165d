#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "cli/client.h"
#include "muster/v1/job.pb.h"

namespace cli {

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
