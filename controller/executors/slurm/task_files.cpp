#include "executors/slurm/task_files.h"

#include "contract/rank_status.h"
#include "contract/task_launch.h"
#include "os/durable_file.h"
#include "schema/whole_number.h"

namespace executors::on_slurm {
namespace {

constexpr unsigned kOwnersOnly = 0600;
constexpr std::size_t kMostSetFile = 1 << 20;

TaskReport::Process process_of(contract::RankStatus::State state) {
  switch (state) {
    case contract::RankStatus::State::kExited:
      return TaskReport::Process::kExited;
    case contract::RankStatus::State::kStepLost:
      return TaskReport::Process::kStepLost;
    case contract::RankStatus::State::kRunning:
      break;
  }
  return TaskReport::Process::kRunning;
}

/// ".../jobs/7/attempt-2" is {7, 2}; anything else {}.
core::AttemptKey attempt_of_folder(const std::filesystem::path& folder) {
  constexpr std::string_view kAttempt = "attempt-";
  const auto name = folder.filename().string();
  if (!name.starts_with(kAttempt)) return {};
  const auto job = schema::whole_number<core::JobId>(folder.parent_path().filename().string());
  const auto number = schema::whole_number<core::AttemptNumber>(std::string_view(name).substr(kAttempt.size()));
  return job && number ? core::AttemptKey{*job, *number} : core::AttemptKey{};
}

}  // namespace

void write_launch_file(const LaunchRequest& request, bool forward_signals) {
  const contract::TaskLaunch launch{.argv = request.argv,
                                    .env = request.env,
                                    .working_folder = request.working_folder,
                                    .log_folder = request.log_folder,
                                    .job_name = request.job_name,
                                    .fence_folder = request.fence_folder,
                                    .log_link = request.slurm.output,
                                    .is_command = request.is_command,
                                    .forward_signals = forward_signals,
                                    .time_limit_ms = request.time_limit.count(),
                                    .stop_grace_ms = request.stop_grace.count()};
  const std::filesystem::path folder = request.attempt_folder;
  os::make_folders(request.log_folder);
  os::make_folders(contract::rank_status_folder(folder));
  os::write_file_durably(folder / contract::kTaskLaunchFile, to_text(launch), kOwnersOnly);
}

std::optional<TaskReport> read_rank_status(const std::filesystem::path& attempt_folder, core::RankNumber rank) {
  std::string text;
  try {
    text = os::read_small_file(contract::rank_status_file(attempt_folder, rank));
  } catch (const std::system_error&) {
    return std::nullopt;
  }
  const auto status = contract::parse_rank_status(text);
  if (!status) return std::nullopt;
  return TaskReport{.process = process_of(status->state),
                    .node = status->node,
                    .pid = status->pid,
                    .exit = status->exit,
                    .out_of_memory = status->out_of_memory,
                    .signals_seen = status->signals_seen,
                    .trouble = status->trouble,
                    .ended_at = core::Millis(status->ended_at_ms),
                    .error = status->error};
}

bool any_rank_status(const std::filesystem::path& attempt_folder) {
  std::error_code ignored;
  std::filesystem::directory_iterator entries(contract::rank_status_folder(attempt_folder), ignored);
  return !ignored && entries != std::filesystem::directory_iterator();
}

void write_set_file(const std::filesystem::path& path, const std::vector<std::string>& attempt_folders) {
  os::make_private_folder(path.parent_path());
  os::write_file_durably(path, contract::to_set_text(attempt_folders));
}

std::vector<core::AttemptKey> read_set_file(const std::filesystem::path& path) {
  std::vector<core::AttemptKey> keys;
  for (const auto& folder : contract::parse_set(os::read_small_file(path, kMostSetFile))) {
    keys.push_back(attempt_of_folder(folder));
  }
  return keys;
}

}  // namespace executors::on_slurm
