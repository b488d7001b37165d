#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
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

/// All of `text` as a real number, such as "3e-4"; nullopt if it is anything else.
inline std::optional<double> real_number(std::string_view text) {
  return whole_number<double>(text);
}

/// Parses a duration in milliseconds: "500ms", "90s", "30m", "12h", "2d", "1h30m". Units go from large to small, each
/// at most once. Returns nullopt for anything else: no unit, a sign, a fraction, a space, more than 10,000 days.
std::optional<std::int64_t> parse_duration_ms(std::string_view text);

/// The shortest text that parse_duration_ms reads back as the same value: 90000 is "1m30s".
std::string print_duration_ms(std::int64_t milliseconds);

/// Parses a size in bytes: "16MiB", "64KiB", "1GiB", "2TiB", "512B". Refuses decimal units such as "MB", because their
/// meaning is ambiguous. Returns nullopt for anything else.
std::optional<std::int64_t> parse_size_bytes(std::string_view text);

/// The shortest text that parse_size_bytes reads back as the same value.
std::string print_size_bytes(std::int64_t bytes);

/// A size for people, rounded: "12 B", "1.5 KiB", "10.4 GiB", "812 MiB". Below 100 units it has one decimal.
std::string bytes_text(std::int64_t bytes);

}  // namespace base
