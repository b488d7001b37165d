#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace spec {

/// How another job must end before a job that waits for it starts.
enum class DependsOn { kSucceeded, kFailed, kEnded };  // kFailed: or cancelled
std::string_view to_string(DependsOn condition);       // "succeeded"
std::optional<DependsOn> depends_on_from_string(std::string_view text);

/// A job that another one waits for.
struct Dependency {
  std::int64_t job = 0;
  DependsOn on = DependsOn::kSucceeded;
  bool met = false;
  bool operator==(const Dependency&) const = default;
};
/// "succeeded:12"; nullopt if it is nothing of the kind.
std::optional<Dependency> parse_dependency(std::string_view text);

}  // namespace spec
