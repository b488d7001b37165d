#pragma once

#include <signal.h>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/numbers.h"

namespace agent::protocol {

/// How the folders of attempts, and the logs of ranks in them, are named.
inline constexpr std::string_view kAttemptStart = "attempt-", kLogsFolder = "logs", kRankStart = "rank-",
                                  kLogEnd = ".log";

/// The number of the attempt whose folder that is: 1 for "/data/jobs/7/attempt-1". nullopt: it is none.
inline std::optional<std::int64_t> number_of_attempt_folder(std::string_view path) {
  const auto name = path.substr(path.rfind('/') + 1);
  if (!name.starts_with(kAttemptStart)) return std::nullopt;
  return base::whole_number<std::int64_t>(name.substr(kAttemptStart.size()));
}

/// The attempt folder of a rank's log: "/data/jobs/7/attempt-1" for "/data/jobs/7/attempt-1/logs/rank-0.log". Empty: it
/// is no log of a rank.
inline std::string attempt_of_log(std::string_view path) {
  const auto slash = path.rfind('/');
  if (slash == std::string_view::npos) return {};
  const auto name = path.substr(slash + 1), folder = path.substr(0, slash);
  if (!name.starts_with(kRankStart) || !name.ends_with(kLogEnd)) return {};
  const auto above = folder.rfind('/');
  if (above == std::string_view::npos || folder.substr(above + 1) != kLogsFolder) return {};
  return std::string(folder.substr(0, above));
}

/// Resources that the processes of one rank use, as the agent beside the rank sees it.
struct RankUse {
  std::int64_t at_ms = 0;       // when, by the node's clock, since 1970; it tells two samples apart
  std::optional<double> cores;  // CPU time over time: 1.7 cores. Absent in the first sample
  std::int64_t memory_bytes = 0;
  std::int64_t memory_peak_bytes = 0;  // the most of any sample
  std::uint32_t processes = 0;
  // Use of all GPUs of the rank, all users of these GPUs counted. Absent: the rank has none, or the GPUs don't say.
  std::optional<double> gpu_percent;
  std::optional<std::int64_t> gpu_memory_bytes;
  bool operator==(const RankUse&) const = default;
};

/// The folder below the folder of the checkpoints in which ranks record steps.
inline constexpr const char* kTraceFolder = "trace";

/// The file of one step and one rank there: "step-3.rank0.json".
inline std::string trace_file_name(std::int64_t step, std::int64_t rank) {
  return "step-" + std::to_string(step) + ".rank" + std::to_string(rank) + ".json";
}

/// "step 41", "steps 41 to 43".
inline std::string traced_steps_text(std::int64_t first, std::int64_t steps) {
  const auto from = std::to_string(first);
  return steps == 1 ? "step " + from : "steps " + from + " to " + std::to_string(first + steps - 1);
}

/// A request names its trace by a number from 1 to this: ranks agree on it in doubles.
inline constexpr std::uint64_t kMostTraceNumber = (std::uint64_t{1} << 53) - 1;
/// The most steps of one request, as of train.trace_steps.
inline constexpr std::uint32_t kMostTraceSteps = 1000;

// A checkpoint folder's fence: the job that the folder belongs to, and the job's oldest attempt that may still write
// there. musterd raises it; muster-agent and muster-worker read it.
inline constexpr const char* kFenceFile = "FENCE";
/// Held (flock) by musterd while it raises the fence, shared by a worker while it commits a checkpoint.
inline constexpr const char* kFenceLock = "FENCE.lock";

/// Attempt `attempt` of job `job`.
struct Fence {
  std::int64_t job = 0;  ///< 0: the file does not name the job, as musterd once wrote it
  std::int64_t attempt = 0;
  /// True if this attempt of this job may write into the folder.
  bool lets(std::int64_t of_job, std::int64_t its_attempt) const {
    return (job == 0 || job == of_job) && attempt <= its_attempt;
  }
  bool operator==(const Fence&) const = default;
};

/// The checksum of a text, FNV-1a of 32 bits, as eight hexadecimal digits: a digit that the disk has changed is found.
inline std::string fence_check(std::string_view text) {
  std::uint32_t sum = 2166136261U;
  for (const char c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 16777619U;
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string digits;
  for (int shift = 28; shift >= 0; shift -= 4) digits += kDigits[(sum >> shift) & 15U];
  return digits;
}

inline std::string fence_text(const Fence& fence) {
  const auto text = "job " + std::to_string(fence.job) + " attempt " + std::to_string(fence.attempt);
  return text + " check " + fence_check(text) + "\n";
}

/// The fence in "job J attempt N check C\n", "job J attempt N\n" or "attempt N\n"; nullopt for any other text, and
/// where the check is not that of the text before it. The forms without a check are of an earlier musterd.
inline std::optional<Fence> parse_fence(std::string_view text) {
  const auto take = [&text](std::string_view word, std::int64_t& number) {
    if (!text.starts_with(word)) return false;
    text.remove_prefix(word.size());
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || number < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return true;
  };
  const auto whole = text;
  Fence fence;
  const bool names_job = text.starts_with("job ");
  if (names_job && !take("job ", fence.job)) return std::nullopt;
  if (!take(names_job ? " attempt " : "attempt ", fence.attempt)) return std::nullopt;
  if (text == "\n") return fence;
  const auto summed = whole.substr(0, whole.size() - text.size());
  return text == " check " + fence_check(summed) + "\n" ? std::optional(fence) : std::nullopt;
}

}  // namespace agent::protocol

// How the stack of a rank comes from its processes to the agent beside it, and from there to people.
//
// A process that can write its own stack has a handler for kStackSignal, and a file in memory (memfd_create) whose name
// is kStackMemory with the process's own number behind it. The agent finds the file below /proc/<pid>/fd, empties it,
// sends the signal to that process alone, and there to the thread named kStackThread if there is one, so that no system
// call of another thread is interrupted, and reads what appears. A program of Python that has written nothing after a
// while is asked a second time: then its interpreter's lock is kept by a thread that hangs. A forked child has the file
// too, but the name holds its parent's number, so the child is never asked. The signal's default is to be ignored: a
// process that has lost its handler by then, by exec for one, does not notice it.
//
// The text of a stack has a section for each process of the rank, its first process first: a line of section_head(),
// and lines as the one who took it writes them.
namespace agent::protocol {

inline constexpr int kStackSignal = SIGURG;
inline constexpr const char* kStackMemory = "muster-stack-";
inline constexpr std::string_view kStackThread = "muster-stacks";
/// The most of a rank's text. What is longer ends with kStackCut.
inline constexpr std::size_t kMostStackBytes = std::size_t{256} << 10;
inline constexpr std::string_view kStackCut = "... cut here: the text of a rank has at most 256 KiB\n";

/// Who has taken the stack of a process.
inline constexpr std::string_view kByFaulthandler = "frames of Python, by its faulthandler";
inline constexpr std::string_view kByPySpy = "frames of Python, by py-spy";
inline constexpr std::string_view kByWorker = "frames of each thread, by muster-worker";
inline constexpr std::string_view kByKernel = "state of each thread, by the kernel";

inline constexpr std::string_view kSectionMark = "== process ";
inline constexpr std::string_view kSectionBy = " == ";
/// "== process 41 (python3 train.py) == frames of Python, by py-spy", with the end of the line.
inline std::string section_head(std::int64_t pid, const std::string& command, std::string_view by) {
  return std::string(kSectionMark) + std::to_string(pid) + " (" + command + ")" + std::string(kSectionBy) +
         std::string(by) + "\n";
}

/// <attempt>/stacks/<number>/rank-<r>.txt, and beside it what kStackSetFile tells of them.
inline constexpr const char* kStacksFolder = "stacks";
inline constexpr const char* kStackSetFile = "set.json";
inline std::filesystem::path stack_folder(const std::filesystem::path& attempt, std::uint64_t number) {
  return attempt / kStacksFolder / std::to_string(number);
}
inline std::string stack_file_name(std::uint32_t rank) {
  return "rank-" + std::to_string(rank) + ".txt";
}

/// True if an error is one that a rank reports when another rank has gone: a connection that was closed, a collective
/// that was aborted. Such an error is the first cause of an end only where no other rank tells another one.
bool is_of_a_survivor(std::string_view error);

}  // namespace agent::protocol
