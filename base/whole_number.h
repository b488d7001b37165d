#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace base {

/// All of `text` as a number of that type, such as the "12" of a job's folder; nullopt if it is anything else.
template <typename Number>
std::optional<Number> whole_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace base
