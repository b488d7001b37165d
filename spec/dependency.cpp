#include "spec/dependency.h"

#include <algorithm>
#include <utility>

#include "base/numbers.h"

namespace spec {
namespace {

constexpr auto kConditions = std::to_array<std::pair<DependsOn, std::string_view>>(
    {{DependsOn::kSucceeded, "succeeded"}, {DependsOn::kFailed, "failed"}, {DependsOn::kEnded, "ended"}});
static_assert(std::ranges::equal(kConditions, all_of<DependsOn>(), {}, &std::pair<DependsOn, std::string_view>::first));

}  // namespace

std::string_view to_string(DependsOn condition) {
  return kConditions[static_cast<std::size_t>(condition)].second;
}

std::optional<DependsOn> depends_on_from_string(std::string_view text) {
  const auto* found = std::ranges::find(kConditions, text, &std::pair<DependsOn, std::string_view>::second);
  return found == kConditions.end() ? std::nullopt : std::optional(found->first);
}

std::optional<Dependency> parse_dependency(std::string_view text) {
  const auto colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto on = depends_on_from_string(text.substr(0, colon));
  const auto job = base::whole_number<std::int64_t>(text.substr(colon + 1));
  if (!on || !job || *job <= 0) return std::nullopt;
  return Dependency{*job, *on, false};
}

}  // namespace spec
