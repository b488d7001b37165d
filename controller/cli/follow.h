#pragma once

#include <functional>
#include <optional>

#include "cli/contact.h"
#include "cli/time_left.h"

namespace cli {

bool is_ended(const muster::v1::Job& job);

/// A connection, tried for again until `limit` has passed: what a submission needs to outlive a controller's restart.
/// Says once on stderr that it is waiting.
void connect_patiently(Client& client, std::chrono::seconds limit);

/// Waits until the job has ended, whatever happens to the connection. `on_change` sees the job now and after each
/// change. kComplete: `last` is the ended job.
StreamEnd wait_for_end(Client& client, std::int64_t job, std::optional<Contact::Clock::time_point> deadline,
                       const std::function<void(const muster::v1::Job&)>& on_change, muster::v1::Job* last);

/// The state and why, each said once: "failed: rank 1 exited with 2", "cancelled by ada".
std::string outcome_text(const muster::v1::Job& job);

/// What became of an ended job in numbers: "2 attempts, step 150/150, loss 2.585, took 27s; checkpoints in /...".
std::string summary_text(const muster::v1::Job& job);

/// Tells on stderr how the job ended, in words and numbers, and where to look, with the end of Slurm's log where that
/// is all there is, and gives the exit code. `end` other than kComplete: that the job goes on.
int tell_end(Client& client, StreamEnd end, std::int64_t id, const muster::v1::Job& job);

/// A line, or on a terminal a bar, about a job in training, on stderr. Lines come when something happens, and every
/// ten seconds or tenth of the way.
class Progress {
 public:
  void show(const muster::v1::Job& job);
  /// Ends the bar's line.
  void close();

 private:
  void line(const muster::v1::Job& job);

  TimeLeft left_;
  bool bar_open_ = false;
  std::string told_;  // the newest state told
  std::int64_t told_step_ = -1;
  std::chrono::steady_clock::time_point told_at_{};
};

}  // namespace cli
