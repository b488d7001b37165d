#include "controller/executors/slurm/attempt_files.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "agent/protocol/facts.h"
#include "agent/protocol/files.h"
#include "agent/watch/agent_files.h"
#include "base/durable_file.h"
#include "base/numbers.h"
#include "spec/exit_codes.h"

namespace executors::on_slurm {
namespace {

constexpr unsigned kOwnersOnly = 0600;
constexpr std::size_t kMostSetFile = 1 << 20;
constexpr std::size_t kMostStatusFile = 1 << 20;

/// The report of an agent about one of its ranks, from its facts. nullopt: it has not begun with the rank.
std::optional<TaskReport> report_of(const agent::protocol::Status& status, core::RankNumber rank) {
  using Process = TaskReport::Process;
  TaskReport report;
  report.process = Process::kRunning;
  if (status.started) report.node = status.started->node;
  if (status.failed) {
    report.process = Process::kExited;
    report.node = status.failed->node;
    report.exit.code = spec::kExitCannotStart;
    report.trouble = status.failed->reason;
    return report;
  }
  if (!status.started) return std::nullopt;
  // An agent of Slurm's has one rank.
  if (!status.started->ranks.empty()) report.pid = status.started->ranks.front().pid;
  const auto found = status.exits.find(rank);
  if (found == status.exits.end()) return report;
  const auto& exited = found->second;
  report.process = exited.step_lost ? Process::kStepLost : Process::kExited;
  report.exit = exited.exit;
  report.out_of_memory = exited.out_of_memory;
  report.signals_seen = exited.signals_seen;
  report.ended_at = core::Millis(exited.at_ms);
  report.error = exited.error;
  return report;
}

/// ".../jobs/7/attempt-2" is {7, 2}; anything else {}.
core::AttemptKey attempt_of_folder(const std::filesystem::path& folder) {
  constexpr auto kAttempt = agent::protocol::kAttemptStart;
  const auto name = folder.filename().string();
  if (!name.starts_with(kAttempt)) return {};
  const auto job = base::whole_number<core::JobId>(folder.parent_path().filename().string());
  const auto number = base::whole_number<core::AttemptNumber>(std::string_view(name).substr(kAttempt.size()));
  return job && number ? core::AttemptKey{*job, *number} : core::AttemptKey{};
}

constexpr std::uintmax_t kMostRead = 16 * 1024;  // from the end of the log

/// The text that `read` reads of a log; empty: the log cannot be read.
template <class Read>
std::string text_of_log(Read&& read) {
  try {
    return read();
  } catch (const std::exception& error) {
    spdlog::warn("the Slurm log of an attempt cannot be read: {}", error.what());
    return {};
  }
}

/// The text at the end of a log. Empty: there is no log, or it cannot be read.
std::string end_of_log(const std::filesystem::path& log) {
  return text_of_log([&] {
    std::error_code none;
    const auto size = std::filesystem::file_size(log, none);
    return none ? std::string() : base::read_small_file(log, kMostRead, size > kMostRead ? size - kMostRead : 0);
  });
}

bool says_nothing(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

constexpr std::size_t kMostLog = 1 << 20;  // from the beginning, and from the end
constexpr std::size_t kMostNodes = 256;
constexpr std::size_t kLongestName = 255;

/// The text of a log. A long log loses its middle, because setup lines before a check may print much. Lines stay whole:
/// half a name is another node's name.
std::string ends_of(const std::filesystem::path& log) {
  return text_of_log([&] {
    auto text = base::read_small_file(log, 2 * kMostLog);
    const auto size = text.size() < 2 * kMostLog ? text.size() : std::filesystem::file_size(log);
    if (size <= 2 * kMostLog) return text;
    text.resize(text.rfind('\n', kMostLog) + 1);
    return text + base::read_small_file(log, kMostLog, size - kMostLog);
  });
}

agent::protocol::Launch launch_of(const LaunchRequest& request, bool forward_signals) {
  return {.argv = request.argv,
          .env = request.env,
          .working_folder = request.working_folder,
          .log_folder = request.log_folder,
          .job_name = request.job_name,
          .fence_folder = request.fence_folder,
          .log_link = request.slurm.output,
          .is_command = request.is_command,
          .forward_signals = forward_signals,
          .time_limit_ms = request.time_limit.count(),
          .stop_grace_ms = request.stop_grace.count(),
          .report = request.report,
          .own_launcher = request.own_launcher,
          .batch = request.batch,
          .unprepared = !request.prepared,
          .run_file = request.run_file,
          .cache_folder = request.cache_folder};
}

}  // namespace

void write_launch_file(const LaunchRequest& request, bool forward_signals) {
  const auto launch = launch_of(request, forward_signals);
  const std::filesystem::path folder = request.attempt_folder;
  if (!request.prepared) agent::watch::make_start(agent::watch::start_of(launch, folder));
  base::make_folders(request.log_folder);
  base::write_file_durably(folder / agent::protocol::kLaunchFile, to_text(launch), kOwnersOnly);
}

std::optional<TaskReport> read_rank_status(const std::filesystem::path& attempt_folder, core::RankNumber rank) {
  try {
    const auto text = base::read_small_file(attempt_folder / agent::protocol::status_file(rank), kMostStatusFile);
    return report_of(agent::protocol::parse_status(text), rank);
  } catch (const std::runtime_error&) {  // std::system_error is one
    return std::nullopt;
  }
}

bool any_rank_status(const std::filesystem::path& attempt_folder) {
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry(attempt_folder, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    if (agent::protocol::is_status_file(entry->path().filename().native())) return true;
  }
  return false;
}

std::optional<agent::protocol::ElementPlace> element_place(const std::filesystem::path& attempt_folder) {
  return agent::protocol::parse_element(base::read_small_file(attempt_folder / agent::protocol::kElementFile));
}

void write_set_files(const std::filesystem::path& set_folder, const std::vector<LaunchRequest>& members,
                     bool forward_signals) {
  std::vector<std::string> folders;
  std::vector<agent::protocol::Launch> launches;
  for (const auto& member : members) {
    folders.push_back(member.attempt_folder);
    launches.push_back(launch_of(member, forward_signals));
  }
  base::make_private_folder(set_folder);
  base::write_file_durably(set_folder / agent::protocol::kSetLaunchFile, agent::protocol::to_set_launch_text(launches),
                           kOwnersOnly);
  base::write_file_durably(set_folder / kSetFile, agent::protocol::to_set_text(folders));
}

std::vector<core::AttemptKey> read_set_file(const std::filesystem::path& path) {
  std::vector<core::AttemptKey> keys;
  for (const auto& folder : agent::protocol::parse_set(base::read_small_file(path, kMostSetFile))) {
    keys.push_back(attempt_of_folder(folder));
  }
  return keys;
}

std::string telling_line(std::string_view log) {
  std::string_view best;
  while (!log.empty()) {
    const auto begin = log.rfind('\n') + 1;  // 0 if there is none
    const auto line = log.substr(begin);
    log = log.substr(0, begin == 0 ? 0 : begin - 1);
    if (says_nothing(line)) continue;
    if (best.empty()) best = line;
    if (line.starts_with("srun: ")) continue;
    best = line;
    break;
  }
  std::string text;
  for (const char c : best.substr(0, kLongestQuote)) {
    if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7F) text += c;
  }
  return text;
}

bool was_begun_already(const std::filesystem::path& log) {
  return telling_line(end_of_log(log)).starts_with(kBegunAlready);
}

bool names_preemption(std::string_view log) {
  constexpr std::string_view kFrom = " error: *** ", kTo = " DUE TO PREEMPTION ***";
  for (auto at = log.find(kTo); at != std::string_view::npos; at = log.find(kTo, at + 1)) {
    const auto begin = log.rfind('\n', at) + 1;  // 0 if there is none
    if (log.substr(begin, at - begin).find(kFrom) != std::string_view::npos) return true;
  }
  return false;
}

bool was_preempted(const std::filesystem::path& log) {
  return names_preemption(ends_of(log));
}

std::string quote_of_log(const std::filesystem::path& log) {
  const auto line = telling_line(end_of_log(log));
  return line.empty() ? std::string() : "; its Slurm log ends with: " + line;
}

std::vector<core::EventBody> unfit_nodes(std::string_view log, core::AttemptNumber attempt) {
  std::set<std::string_view> known;
  std::vector<core::EventBody> facts;
  for (auto at = log.find(kUnfitMark); at != std::string_view::npos && facts.size() < kMostNodes;
       at = log.find(kUnfitMark, at + 1)) {
    const auto line = log.substr(at + kUnfitMark.size(), log.find('\n', at) - at - kUnfitMark.size());
    const auto node = line.substr(0, line.find(' '));
    if (node.empty() || node.size() > kLongestName || !known.insert(node).second) continue;
    core::NodeLost lost{attempt, std::string(node), core::Millis(0)};
    const auto rest = line.substr(std::min(node.size(), line.size()));
    lost.why = "its health check failed" + std::string(rest);
    lost.only_this_job = rest.starts_with(kOwnCheckMark);
    facts.emplace_back(std::move(lost));
  }
  return facts;
}

std::vector<core::EventBody> unfit_nodes_of(const std::filesystem::path& log, core::AttemptNumber attempt) {
  return unfit_nodes(ends_of(log), attempt);
}

}  // namespace executors::on_slurm
