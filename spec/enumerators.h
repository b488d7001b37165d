#pragma once

#include <array>
#include <cstddef>
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

}  // namespace spec
