#include "executors/slurm/node_facts.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>

#include "executors/node_fitness.h"
#include "executors/slurm/submission.h"
#include "os/durable_file.h"

namespace executors::on_slurm {
namespace {

constexpr std::size_t kMostLog = 1 << 20;  // from the beginning, and from the end
constexpr std::size_t kMostNodes = 256;
constexpr std::size_t kLongestName = 255;

/// The text of a log. A long log loses its middle, because setup lines before a check may print much. Lines stay whole:
/// half a name is another node's name.
std::string ends_of(const std::filesystem::path& log) {
  auto text = os::read_small_file(log, 2 * kMostLog);
  const auto size = text.size() < 2 * kMostLog ? text.size() : std::filesystem::file_size(log);
  if (size <= 2 * kMostLog) return text;
  text.resize(text.rfind('\n', kMostLog) + 1);
  return text + os::read_small_file(log, kMostLog, size - kMostLog);
}

}  // namespace

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

std::vector<core::EventBody> unfit_nodes_of(const std::filesystem::path& attempt_folder, core::AttemptNumber attempt) {
  try {
    return unfit_nodes(ends_of(slurm_log_of(attempt_folder)), attempt);
  } catch (const std::exception& error) {
    spdlog::warn("which nodes failed their health check cannot be told: {}", error.what());
    return {};
  }
}

std::vector<core::EventBody> nodes_without_launch(const std::vector<::slurm::Node>& nodes, core::Time since,
                                                  const std::vector<std::string>& left_out,
                                                  core::AttemptNumber attempt) {
  std::vector<core::EventBody> facts;
  for (const auto& node : nodes) {
    const auto at = node.why_since();
    if (!node.failed_a_launch() || !at || *at < since || facts.size() == kMostNodes) continue;
    if (std::ranges::find(left_out, node.name) != left_out.end()) continue;
    core::NodeLost lost{attempt, node.name, core::Millis(0)};
    lost.why = "Slurm could not start the job on it (" + node.why() + ")";
    facts.emplace_back(std::move(lost));
  }
  return facts;
}

}  // namespace executors::on_slurm
