#include "runtime/slurm/health_check.h"

#include <spdlog/spdlog.h>

#include <set>

#include "runtime/durable_file.h"
#include "runtime/slurm/submission.h"

namespace runtime::on_slurm {
namespace {

constexpr std::string_view kMark = "muster: the health check failed on ";
constexpr std::size_t kMostLog = 1 << 20;
constexpr std::size_t kMostNodes = 256;
constexpr std::size_t kLongestName = 255;

}  // namespace

std::string telling_check(const std::string& check) {
  return "trap 'muster_code=$?; if [ $muster_code != 0 ]; then echo \"" + std::string(kMark) +
         "${SLURMD_NODENAME:-$(uname -n)} with exit code $muster_code\" >&2; fi' EXIT\n" + check;
}

std::vector<core::EventBody> unfit_nodes(std::string_view log, core::AttemptNumber attempt) {
  std::set<std::string_view> known;
  std::vector<core::EventBody> facts;
  for (auto at = log.find(kMark); at != std::string_view::npos && facts.size() < kMostNodes;
       at = log.find(kMark, at + 1)) {
    const auto line = log.substr(at + kMark.size(), log.find('\n', at) - at - kMark.size());
    const auto node = line.substr(0, line.find(' '));
    if (node.empty() || node.size() > kLongestName || !known.insert(node).second) continue;
    core::NodeLost lost{attempt, std::string(node), core::Millis(0)};
    lost.why = "its health check failed" + std::string(line.substr(std::min(node.size(), line.size())));
    facts.emplace_back(std::move(lost));
  }
  return facts;
}

std::vector<core::EventBody> unfit_nodes_of(const std::filesystem::path& attempt_folder, core::AttemptNumber attempt) {
  const auto record = read_record(attempt_folder);
  const bool of_set = record && !record->set_folder.empty();
  const auto log = of_set
                       ? std::filesystem::path(record->set_folder) / ("slurm-" + std::to_string(record->index) + ".log")
                       : attempt_folder / "slurm.log";
  try {
    return unfit_nodes(read_small_file(log, kMostLog), attempt);
  } catch (const std::exception& error) {
    spdlog::warn("which nodes failed their health check cannot be told: {}", error.what());
    return {};
  }
}

}  // namespace runtime::on_slurm
