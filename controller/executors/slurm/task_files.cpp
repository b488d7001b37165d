#include "executors/slurm/task_files.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "base/durable_file.h"

namespace runtime::on_slurm {
namespace {

constexpr int kFormat = 1;
constexpr unsigned kOwnersOnly = 0600;
constexpr std::size_t kMostSetFile = 1 << 20;

std::filesystem::path status_path(const std::filesystem::path& attempt_folder, core::RankNumber rank) {
  return attempt_folder / "ranks" / ("rank-" + std::to_string(rank) + ".json");
}

TaskReport::Process process_of(const std::string& state) {
  if (state == "exited") return TaskReport::Process::kExited;
  if (state == "step_lost") return TaskReport::Process::kStepLost;
  return TaskReport::Process::kRunning;
}

/// ".../jobs/7/attempt-2" is {7, 2}; anything else {}.
core::AttemptKey attempt_of_folder(const std::filesystem::path& folder) {
  constexpr std::string_view kAttempt = "attempt-";
  const auto number = [](std::string_view text, auto& value) {
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
    return read.ec == std::errc() && read.ptr == text.data() + text.size();
  };
  const auto attempt = folder.filename().string(), job = folder.parent_path().filename().string();
  core::AttemptKey key;
  if (!attempt.starts_with(kAttempt) || !number(std::string_view(attempt).substr(kAttempt.size()), key.number) ||
      !number(job, key.job)) {
    return {};
  }
  return key;
}

}  // namespace

void write_launch_file(const LaunchRequest& request, bool forward_signals) {
  const nlohmann::ordered_json json = {
      {"format", kFormat},
      {"argv", request.argv},
      {"env", request.env},
      {"working_folder", request.working_folder},
      {"log_folder", request.log_folder},
      {"job_name", request.job_name},
      {"fence_folder", request.fence_folder},
      {"log_link", request.slurm.output},
      {"is_command", request.is_command},
      {"forward_signals", forward_signals},
      {"time_limit_ms", request.time_limit.count()},
      {"stop_grace_ms", request.stop_grace.count()},
  };
  make_folders(request.log_folder);
  make_folders(std::filesystem::path(request.attempt_folder) / "ranks");
  write_file_durably(std::filesystem::path(request.attempt_folder) / "launch.json", json.dump(2) + "\n", kOwnersOnly);
}

std::optional<TaskReport> read_rank_status(const std::filesystem::path& attempt_folder, core::RankNumber rank) {
  std::string text;
  try {
    text = read_small_file(status_path(attempt_folder, rank));
  } catch (const std::system_error&) {
    return std::nullopt;
  }
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || json.value("format", 0) != kFormat) return std::nullopt;
  try {
    TaskReport report;
    report.process = process_of(json.value("state", ""));
    report.node = json.value("node", "");
    report.pid = json.value("pid", std::int64_t{0});
    report.exit = {json.value("exit_code", 0), json.value("signal", 0)};
    report.out_of_memory = json.value("out_of_memory", false);
    report.signals_seen = json.value("signals_seen", std::vector<int>{});
    report.trouble = json.value("trouble", "");
    report.error = json.value("error", "");
    report.ended_at = core::Millis(json.value("ended_at_ms", std::int64_t{0}));
    return report;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

bool any_rank_status(const std::filesystem::path& attempt_folder) {
  std::error_code ignored;
  std::filesystem::directory_iterator entries(attempt_folder / "ranks", ignored);
  return !ignored && entries != std::filesystem::directory_iterator();
}

void write_set_file(const std::filesystem::path& path, const std::vector<std::string>& attempt_folders) {
  make_private_folder(path.parent_path());
  const nlohmann::ordered_json json = {{"format", kFormat}, {"attempts", attempt_folders}};
  write_file_durably(path, json.dump() + "\n");
}

std::vector<core::AttemptKey> read_set_file(const std::filesystem::path& path) {
  const auto json = nlohmann::json::parse(read_small_file(path, kMostSetFile), nullptr, false);
  std::vector<core::AttemptKey> keys;
  if (!json.is_object() || !json.contains("attempts") || !json["attempts"].is_array()) return keys;
  for (const auto& folder : json["attempts"]) {
    keys.push_back(folder.is_string() ? attempt_of_folder(folder.get<std::string>()) : core::AttemptKey{});
  }
  return keys;
}

}  // namespace runtime::on_slurm
