#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "controller/common/data_folder.h"
#include "controller/common/loop.h"
#include "controller/core/event.h"
#include "controller/jobs/event_log.h"
#include "controller/jobs/specs.h"

namespace jobs {

/// The contents of a program's checkpoint folder, for muster to see whether an attempt brought anything new. Clocks of
/// other nodes play no part: names, sizes and times of files are compared with what they were, never with a time.
///
/// Left out is what is no checkpoint: muster's own FENCE and FENCE.lock, logs and curves (*.log, *.out, *.err,
/// events.out.tfevents*), locks and drafts (*.lock, *.pid, *.tmp), names that begin with a dot, and whole folders of
/// experiment trackers (wandb, mlruns, __pycache__). A program that rewrites one of those at each start would else be
/// started for ever.
struct FolderContents {
  struct Entry {
    std::uint64_t digest = 0;    // of names, sizes and times of all files below
    std::int64_t newest_ns = 0;  // the latest of these times
    bool operator==(const Entry&) const = default;
  };
  std::map<std::string, Entry> entries;  // files and folders at the top that hold a file, by names in UTF-8
  /// The saves, by the names of agent::watch::saves_of() in UTF-8; nullopt: an earlier musterd has not noted them.
  std::optional<std::map<std::string, Entry>> saves;
  std::string trouble;  // not empty: why it is not known what is there
  bool operator==(const FolderContents&) const = default;
};

/// A folder that is not there is empty. Takes as long as its file system does.
FolderContents look_into(const std::filesystem::path& folder);
/// Returns the contents that look_into() returns, but gives up after kFolderPatience.
FolderContents look_into_soon(const std::filesystem::path& folder);

/// Returns the contents that look_into() returns, without the changes since `before` that only cut off saves made.
///
/// Judged is each save that is new or has changed. An entry is left out where none of its saves that tell a step is
/// whole. Of an entry without such a save, all others must be whole. So an older complete checkpoint counts beside a
/// newer one that was cut off, and a damaged file beside them hides nothing.
FolderContents look_for_whole_saves(const std::filesystem::path& folder, const FolderContents& before);

std::string to_text(const FolderContents& contents);
/// Reads the text that to_text() wrote; nothing for any other text.
std::optional<FolderContents> contents_from_text(const std::string& text);

/// The event for the history at the end of an attempt; nothing where nothing is new.
std::optional<core::CheckpointFolderSeen> compare(core::AttemptNumber attempt, const FolderContents& before,
                                                  const FolderContents& after);

inline constexpr std::size_t kMostFiles = 20'000;
inline constexpr int kDeepest = 6;
inline constexpr core::Millis kFolderPatience{2'000};

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
