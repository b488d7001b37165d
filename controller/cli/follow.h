#pragma once

#include <functional>
#include <optional>

#include "cli/contact.h"
#include "cli/time_left.h"

namespace cli {

bool is_ended(const muster::v1::Job& job);

/// Connects, and tries again until `limit` has passed, so that a submission survives a restart of the controller. Says
/// once on stderr that it waits.
void connect_patiently(Client& client, std::chrono::seconds limit);

/// Waits until the job has ended, even if the connection is lost in between. Calls `on_change` with the job at once and
/// after each change. After kComplete `last` is the ended job.
StreamEnd wait_for_end(
    Client& client, std::int64_t job, muster::v1::Job* last,
    std::optional<Contact::Clock::time_point> deadline = std::nullopt,
    const std::function<void(const muster::v1::Job&)>& on_change = [](const muster::v1::Job&) {});

/// The job's state and reason: "failed: rank 1 exited with 2". A reason that begins with the state stands alone:
/// "cancelled by ada".
std::string outcome_text(const muster::v1::Job& job);

/// The numbers of an ended job: "2 attempts, step 150/150, loss 2.585, took 27s; checkpoints in /...".
std::string summary_text(const muster::v1::Job& job);

/// Prints on stderr how the job ended and where to look. If no rank has started, prints the end of Slurm's log too. If
/// `end` is not kComplete, says that the job goes on. Returns the exit code.
int tell_end(Client& client, StreamEnd end, std::int64_t id, const muster::v1::Job& job);

/// Shows the progress of a training on stderr, as a bar on a terminal and otherwise as lines. A line comes when
/// something happens, after every ten seconds, and after every tenth of the steps.
class Progress {
 public:
  void show(const muster::v1::Job& job);
  /// Ends the line of the bar.
  void close();

 private:
  void line(const muster::v1::Job& job);

  TimeLeft left_;
  bool bar_open_ = false;
  std::string told_;  // the state that was printed last
  std::int64_t told_step_ = -1;
  std::chrono::steady_clock::time_point told_at_{};
};

}  // namespace cli
