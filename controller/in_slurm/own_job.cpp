#include "controller/in_slurm/own_job.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/checksum.h"

namespace in_slurm {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

constexpr std::chrono::minutes kUsualLimit = std::chrono::days(1);
/// Slurm sends signals on a grid of 30 s. musterd bounds its own end by 20 s.
constexpr seconds kWarnedBefore{120};
constexpr const char* kPassedOn[]{"HOME", "USER", "LOGNAME", "SHELL", "LANG", "PATH", "LD_LIBRARY_PATH"};

/// The folder by the path that all of its links lead to, so that it has one name.
fs::path named(const fs::path& data_folder) {
  std::error_code none;
  const auto path = fs::weakly_canonical(data_folder, none);
  return none ? data_folder : path;
}

}  // namespace

fs::path script_file(const fs::path& data_folder) {
  return data_folder / "musterd.sbatch";
}

std::string comment_of(const fs::path& data_folder) {
  return "musterd:" + named(data_folder).native();
}

slurm::BatchScript script_of(const fs::path& data_folder, const std::vector<std::string>& command, const fs::path& log,
                             const slurm::Options& asked, std::optional<seconds> limit) {
  base::Checksum sum;
  sum.add(named(data_folder).native());
  slurm::BatchScript script;
  script.name = "musterd-" + sum.hex();
  script.comment = comment_of(data_folder);
  script.chdir = data_folder.native();
  script.output = {log.native(), true};
  script.launch.command = command;
  script.launch.in_script = true;
  const auto warned = std::max(seconds(1), limit ? std::min(kWarnedBefore, *limit / 4) : kWarnedBefore);
  script.options = {{"nodes", "1"},
                    {"ntasks", "1"},
                    {"cpus-per-task", "1"},
                    {"mem", "1G"},
                    {"no-requeue", std::nullopt},
                    {"signal", "B:USR1@" + std::to_string(warned.count())}};
  if (asked.contains("mem-per-cpu")) script.options.erase("mem");
  for (const auto& [name, value] : asked) script.options[name] = value;
  script.options["dependency"] = "singleton";
  return script;
}

std::optional<std::chrono::minutes> time_to_ask(const std::vector<slurm::Partition>& partitions,
                                                const slurm::Options& asked) {
  if (asked.contains("time")) return std::nullopt;
  const auto named = asked.find("partition");
  const auto found = std::ranges::find_if(partitions, [&](const slurm::Partition& one) {
    return named == asked.end() ? one.is_default : one.name == named->second.value_or("");
  });
  if (found == partitions.end()) return kUsualLimit;
  if (found->default_time) return std::nullopt;
  if (!found->max_time) return kUsualLimit;
  return std::min(kUsualLimit, std::chrono::floor<std::chrono::minutes>(*found->max_time));
}

std::map<std::string, std::string> environment_of_job() {
  std::map<std::string, std::string> found;
  for (const char* name : kPassedOn) {
    if (const char* value = std::getenv(name); value != nullptr) found[name] = value;
  }
  return found;
}

Standing standing_of(const std::vector<slurm::ListedJob>& jobs, const std::string& comment) {
  Standing found;
  for (const auto& job : jobs) {
    if (job.comment != comment) continue;
    const auto phase = slurm::classify(job.state.state);
    if (phase == slurm::JobPhase::kActive || (phase == slurm::JobPhase::kEnding && !found.running)) {
      found.running = job;
    } else if (phase == slurm::JobPhase::kQueued) {
      found.queued.push_back(job);
    } else if (phase == slurm::JobPhase::kEnded && (!found.ended || found.ended->id < job.id)) {
      found.ended = job;
    }
  }
  std::ranges::sort(found.queued, {}, &slurm::ListedJob::id);
  return found;
}

}  // namespace in_slurm
