#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/process_table.h"

namespace agent::process {

/// How a process is ended: base::kill_exactly, but in tests.
using Kill = std::function<void(const base::ProcessStat&)>;

/// SIGKILL for all children of this process, and for theirs, until none is left. An agent is the subreaper of its
/// ranks: what a rank has started, in whatever session, is a child of the agent once its own parent has ended. Returns
/// what was still there after `patience`, such as a process that waits for a disk, in words: "process 12 (python3)".
/// Empty: nothing.
std::string end_children(std::chrono::milliseconds patience, const Kill& kill = base::kill_exactly);

/// An attempt of a job, as its processes have it in their environment.
struct AttemptMark {
  std::string folder;  // MUSTER_ATTEMPT_FOLDER
  std::int64_t number = 0;
};

/// SIGKILL for processes on this machine that an earlier attempt of the same job has left behind, until none is left.
/// Returns what was still there after `patience`, as end_children() does.
///
/// The owner of a process is known by MUSTER_ATTEMPT_FOLDER in its environment, or where that is overwritten, as a
/// process does that renames itself (setproctitle), by the log of a rank that it writes to. Its children, and those in
/// a session that it leads, are its own. A process of another Slurm job is none.
std::string end_earlier_attempts(const AttemptMark& mark, std::chrono::milliseconds patience,
                                 const Kill& kill = base::kill_exactly);

/// One rank, as its processes show whose they are.
struct RankMark {
  std::string attempt_folder;  // MUSTER_ATTEMPT_FOLDER
  std::string report;          // MUSTER_REPORT, which no other rank has
  std::string log;             // both outputs
};

/// Ends in the same way the processes that this one rank has left behind.
std::string end_rank(const RankMark& mark, std::chrono::milliseconds patience, const Kill& kill = base::kill_exactly);

/// MUSTER_ATTEMPT_FOLDER of the process. nullopt: it has none, or has overwritten a part of it, of which a beginning
/// may be left.
std::optional<std::string> attempt_folder_of_process(std::int64_t pid);

/// Adds a line to a rank's log, where people look first, and to this program's own output. A disk that does not answer
/// is not waited for.
void say_in_log(const std::filesystem::path& log, const std::string& line);

/// "process 12 (python3)", "4 processes, among them 12 (python3)".
std::string in_words(const std::vector<base::ProcessStat>& processes);

/// Starts a process that waits for the death of this one, then ends what the rank has left behind, and goes. Where
/// Slurm has no cgroups, nobody else ends a rank's children in sessions of their own when the agent is killed with its
/// process group. The next attempt may run on other nodes.
///
/// The process is a child of this one in a session of its own, holds no file open, and is ended by end_children(). Call
/// it while this process has one thread. A system that refuses gets no such process.
void keep_rank(const RankMark& mark);

}  // namespace agent::process
