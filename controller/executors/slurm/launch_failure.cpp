#include "executors/slurm/launch_failure.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

namespace runtime::on_slurm {
namespace {

constexpr std::size_t kMostNodes = 256;

/// The text in small letters and with spaces. scontrol prints underscores where squeue prints spaces.
std::string plain(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return c == '_' ? ' ' : static_cast<char>(std::tolower(c)); });
  return text;
}

/// The time in a reason like "Prolog error [root@1795314284]".
std::optional<core::Time> said_at(const std::string& reason) {
  const auto at = reason.rfind('@');
  if (at == std::string::npos) return std::nullopt;
  std::int64_t seconds = 0;
  const auto* begin = reason.data() + at + 1;
  const auto [end, error] = std::from_chars(begin, reason.data() + reason.size(), seconds);
  if (error != std::errc() || end == begin) return std::nullopt;
  return core::Time(std::chrono::seconds(seconds));
}

bool drained_for_it(const ::slurm::Node& node) {
  const bool drained = std::ranges::any_of(node.states, [](const auto& s) { return s == "DRAIN" || s == "DRAINED"; });
  const auto why = plain(node.reason);
  return drained && (why.find("prolog") != std::string::npos || why.find("launch") != std::string::npos ||
                     why.starts_with("batch job complete failure"));
}

}  // namespace

bool is_launch_failure(const ::slurm::ListedJob& job) {
  return plain(job.reason).find("launch failed requeued held") != std::string::npos;
}

std::vector<core::EventBody> nodes_without_launch(const std::vector<::slurm::Node>& nodes, core::Time since,
                                                  const std::vector<std::string>& left_out,
                                                  core::AttemptNumber attempt) {
  std::vector<core::EventBody> facts;
  for (const auto& node : nodes) {
    const auto at = said_at(node.reason);
    if (!drained_for_it(node) || !at || *at < since || facts.size() == kMostNodes) continue;
    if (std::ranges::find(left_out, node.name) != left_out.end()) continue;
    core::NodeLost lost{attempt, node.name, core::Millis(0)};
    lost.why = "Slurm could not start the job on it (" + node.reason.substr(0, node.reason.find(" [")) + ")";
    facts.emplace_back(std::move(lost));
  }
  return facts;
}

}  // namespace runtime::on_slurm
