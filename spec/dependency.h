#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace spec {

/// True if the value is one of its enum's enumerators. Compilers name it in the function's name then, and write any
/// other value as a cast: "(spec::DependsOn)12".
template <auto value>
consteval bool is_enumerator() {
  constexpr std::string_view kName = __PRETTY_FUNCTION__;
  const char behind = kName[kName.rfind(')') + 1];
  return behind < '0' || behind > '9';
}

/// All enumerators of an enum that counts from 0 without gaps, in order.
template <typename Enum, int count = 0>
consteval auto all_of() {
  if constexpr (is_enumerator<static_cast<Enum>(count)>()) {
    return all_of<Enum, count + 1>();
  } else {
    std::array<Enum, count> all{};
    for (int i = 0; i < count; ++i) all[static_cast<std::size_t>(i)] = static_cast<Enum>(i);
    return all;
  }
}

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
