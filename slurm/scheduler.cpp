#include "slurm/scheduler.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "slurm/slurm_text.h"

namespace slurm {
namespace {

template <std::size_t N>
bool has_any(const std::vector<std::string>& states, const std::array<std::string_view, N>& wanted) {
  return std::ranges::any_of(states,
                             [&](const auto& state) { return std::ranges::find(wanted, state) != wanted.end(); });
}

}  // namespace

bool Node::usable() const {
  constexpr std::array<std::string_view, 12> kBad = {"DOWN",   "DRAIN",   "DRAINED",       "DRAINING",
                                                     "FAIL",   "FAILING", "ERROR",         "UNKNOWN",
                                                     "FUTURE", "INVAL",   "REBOOT_ISSUED", "NOT_RESPONDING"};
  return responds && !states.empty() && !has_any(states, kBad);
}

bool Node::is_down() const {
  return !responds || has_any(states, std::to_array<std::string_view>({"DOWN", "FAIL"}));
}

bool Node::should_answer() const {
  return responds && !has_any(states, std::to_array<std::string_view>({"DOWN", "FAIL", "POWERED_DOWN", "POWERING_DOWN",
                                                                       "REBOOT_ISSUED", "UNKNOWN"}));
}

bool Node::failed_a_launch() const {
  const auto words = plain_words(reason);
  return has_any(states, std::to_array<std::string_view>({"DRAIN", "DRAINED"})) &&
         (words.find("prolog") != std::string::npos || words.find("launch") != std::string::npos ||
          words.starts_with("batch job complete failure"));
}

std::string Node::why() const {
  return reason.substr(0, reason.find(" ["));
}

// "Prolog error [root@1795314284]"
std::optional<Time> Node::why_since() const {
  const auto at = reason.rfind('@');
  if (at == std::string::npos || !reason.ends_with(']')) return std::nullopt;
  const auto seconds = parse_number<std::int64_t>(std::string_view(reason).substr(at + 1, reason.size() - at - 2));
  return seconds ? std::optional(Time(std::chrono::seconds(*seconds))) : std::nullopt;
}

}  // namespace slurm
