#pragma once

#include <functional>
#include <memory>

#include "base/clock.h"
#include "executors/executor.h"
#include "ranks/attempt_streams.h"
#include "ranks/pace.h"
#include "ranks/rank_stream.h"

namespace ranks {

/// What a task says, for its executor.
executors::TaskReport report_of(const muster::v1::TaskRequest& request);

/// The streams of all tasks that stand beside ranks.
///
/// A request is given to the executor by the thread that read it: an executor notes it in memory. An answer goes out
/// when there is something to tell: the attempt stands elsewhere, the interval has changed, the task waits for the
/// answer, or AttemptStreams::kAnswerEvery has passed. Thread-safe.
class TaskStreams {
 public:
  struct Parts {
    base::Clock& clock;
    executors::Executor& executor;
    Pace& pace;
  };
  /// Whose task it is.
  struct Rank {
    core::AttemptKey attempt;
    core::RankNumber rank = 0;
    core::Millis interval{0};                   // of the job
    core::Millis stop_grace{0}, save_grace{0};  // until SIGKILL
  };

  explicit TaskStreams(Parts parts) : parts_(parts) {}

  /// What a task is told, on a stream or as the answer to a call.
  muster::v1::TaskResponse answer(const Rank& rank, const AttemptStanding& standing) const;
  /// `standing` tells where the attempt stands now, and must not throw.
  std::shared_ptr<TaskStream> open(const Rank& rank, TellTask tell, const std::function<AttemptStanding()>& standing);
  /// The job's history has gone on: tells tasks what has changed for them.
  void follow(const core::Job& job) { attempts_.follow(job); }
  std::size_t open_now() const { return attempts_.open_now(); }

 private:
  class Stream;
  const Parts parts_;
  AttemptStreams attempts_;
};

}  // namespace ranks
