#pragma once

#include <deque>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "controller/common/data_folder.h"
#include "controller/common/loop.h"
#include "controller/jobs/event_log.h"
#include "controller/jobs/specs.h"

namespace jobs {

/// Stands between the executors and the event_log, for one question: has an attempt of a program that reports nothing
/// saved anything? Budgets refill with progress, so the answer must be in the history before the attempt's end is.
///
/// Contents of the checkpoint folder are noted in the attempt's folder, which outlives this process, before the ranks
/// start, and compared when the last rank of an attempt that did not go well has ended. Facts of such an attempt stay
/// in order. A folder that does not answer holds its attempt's end back by kFolderPatience, and nobody else's for long.
///
/// Thread-safe; one thread of its own. Without threads, take() looks itself.
class ProgressWatch {
 public:
  ProgressWatch(EventLog& event_log, SpecCache& specs, common::DataFolder data, bool threads);

  /// Passes an executor's fact on to the event_log. Returns at once.
  void take(core::JobId job, core::EventBody body);
  /// Takes and passes on nothing more; executors tell again what was not passed on.
  void close();

 private:
  using Fact = std::pair<core::JobId, core::EventBody>;
  /// The ends of an attempt's ranks, kept until all have ended.
  struct Ends {
    std::set<core::RankNumber> ranks;
    bool went_wrong = false;
  };
  /// Under the lock: whether with this fact an attempt ends that is to be looked at.
  bool calls_for_a_look(core::JobId job, const core::EventBody& body);
  /// One step of the loop: passes the oldest waiting fact on.
  std::optional<core::Millis> pass_on();
  void look(const core::AttemptKey& key);

  EventLog& event_log_;
  SpecCache& specs_;
  const common::DataFolder data_;
  const bool threads_;
  std::mutex mutex_;
  bool closed_ = false;
  std::map<core::AttemptKey, Ends> ends_;
  std::deque<std::pair<Fact, bool>> waiting_;  // with whether to look before it
  std::map<core::AttemptKey, int> attempts_;   // that have facts in waiting_, or under way
  common::Loop loop_;
};

/// Before the ranks of a program start: notes what its checkpoint folder holds, once an attempt. Notes nothing of a
/// folder that is known to be empty: a first attempt's, where it is the job's own.
void note_checkpoint_files(const muster::v1::JobSpec& spec, const core::AttemptKey& key,
                           const common::DataFolder& data);

}  // namespace jobs
