#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "agent/protocol/files.h"
#include "agent/protocol/launch.h"

namespace agent::watch {

/// The files of one rank in its attempt's log folder.
struct RankFiles {
  std::filesystem::path log;     // both outputs of its program
  std::filesystem::path error;   // what its program may write about its own end, as torchelastic's @record does
  std::filesystem::path stop;    // why it is asked to leave
  std::filesystem::path report;  // what its program tells of its training; see report.h
};
RankFiles rank_files(const std::filesystem::path& log_folder, std::uint32_t rank);

/// How its program learns where they are: MUSTER_REPORT, MUSTER_STOP and TORCHELASTIC_ERROR_FILE.
std::map<std::string, std::string> file_variables(const RankFiles& files);

/// Files that must lie on disk before the ranks of an attempt start. musterd makes them when it hands an attempt over
/// alone. For an element of a Slurm array the batch script makes them when the element starts (`muster-agent
/// --prepare`), so that a waiting element costs no file.
struct AttemptStart {
  protocol::Fence key;                 // the job and the number of the attempt
  std::filesystem::path folder;        // the attempt's own
  std::filesystem::path log_folder;    // of its ranks
  std::filesystem::path fence_folder;  // the checkpoint folder whose fence is raised; empty: none is
  std::filesystem::path run_path;      // where `run_file` goes
  std::string run_file;                // what muster-worker reads; empty: it reads none
  std::filesystem::path cache_folder;  // of prepared text; empty: none is made
};

/// Returns the AttemptStart of a launch file. The attempt's own variables tell the key and where the run file goes.
/// Where musterd has raised the fence, it is not raised again: a later job may have the folder by now.
AttemptStart start_of(const protocol::Launch& launch, const std::filesystem::path& attempt_folder);

enum class Fencing {
  kRaised,       // or there is no fence to raise
  kRaisedAgain,  // under the lock of a rank of an older attempt, which did not let go of it
  kOver          // a later attempt has the folder, or another job: this attempt may not start
};

/// Makes the folders, raises the fence and writes the run file. May be repeated. Throws std::system_error.
Fencing make_start(const AttemptStart& start);

/// A checkpoint folder belongs to the attempt that `<folder>/FENCE` names ("job 7 attempt 3\n"). Ranks of an older one,
/// and of another job, find that out before they make a checkpoint valid, under a shared flock on
/// `<folder>/FENCE.lock`.
///
/// Raises it to `key`, never to an older attempt of the same job, under an exclusive flock waited for at most
/// `patience`: an old rank that hangs inside its save must not keep the next attempt from starting. Creates the folder.
/// Returns false if the lock was not to be had. The fence is raised all the same: that rank looks at it again when it
/// has published, and withdraws what it has. Throws std::system_error when the folder takes no writes.
bool raise_fence(const std::filesystem::path& folder, const protocol::Fence& key, std::chrono::milliseconds patience);

/// The fence of a checkpoint folder, in its file FENCE. Nothing if there is no such file, or it says something else.
std::optional<protocol::Fence> read_fence(const std::filesystem::path& folder);

/// StopNotice::why where another rank of the attempt has failed.
inline constexpr std::string_view kPeerFailed = "peer_failed";

/// Why a rank is asked to leave, for its program to read: the file that MUSTER_STOP names, written before the signal.
/// A program that is asked to leave and finds no such file was asked by somebody else, Slurm for one, and should save.
struct StopNotice {
  /// "preempted", "time_limit", "requeued", "cancelled", "peer_failed", "superseded"
  std::string why;
  bool save = false;                         // false: nobody waits for a save, and one of this rank alone would be torn
  std::int64_t deadline_ms = 0;              // when SIGKILL follows, by this machine's clock: since 1970
  std::optional<std::int64_t> at_step = {};  // all ranks leave after this step; nullopt: each at once
};

/// {"why":"preempted","save":true,"at_step":1240,"deadline":1795474243.500}, the deadline in seconds.
std::string to_text(const StopNotice& notice);

/// Whole or not at all, for whoever reads it meanwhile. False: the file system refuses it.
bool write_stop_file(const std::filesystem::path& file, const StopNotice& notice);

/// True if the rank's program looks for the stop file by itself: then it has made a file of that name with kAsked
/// behind it. Such a program needs no signal. One would reach its data loaders too, and end them before it has saved.
bool looks_for(const std::filesystem::path& stop_file);
inline constexpr const char* kAsked = ".asked";

}  // namespace agent::watch
