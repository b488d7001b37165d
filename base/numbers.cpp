#include "base/numbers.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace base {
namespace {

struct Unit {
  std::string_view name;
  std::int64_t worth;
};
constexpr std::array<Unit, 5> kDurations{{{"d", 86'400'000}, {"h", 3'600'000}, {"m", 60'000}, {"s", 1000}, {"ms", 1}}};
constexpr std::array<Unit, 5> kSizes{
    {{"TiB", std::int64_t{1} << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}};
constexpr std::int64_t kMostMilliseconds = 10'000 * kDurations[0].worth;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 53;

/// Removes a part such as "12h" from the front of `text`. The part's unit must be `units[*next]` or a smaller one.
template <std::size_t N>
std::optional<std::int64_t> take_part(std::string_view& text, const std::array<Unit, N>& units, std::size_t* next,
                                      std::int64_t most) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data() || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  const auto letters = text.substr(0, text.find_first_of("0123456789"));
  for (; *next < N; ++*next) {
    const auto& unit = units[*next];
    if (letters != unit.name) continue;
    if (number > most / unit.worth) return std::nullopt;
    text.remove_prefix(letters.size());
    ++*next;
    return number * unit.worth;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::int64_t> parse_duration_ms(std::string_view text) {
  if (text.empty() || text.front() == '-') return std::nullopt;
  std::int64_t total = 0;
  for (std::size_t next = 0; !text.empty();) {
    const auto part = take_part(text, kDurations, &next, kMostMilliseconds);
    if (!part) return std::nullopt;
    total += *part;
  }
  return total <= kMostMilliseconds ? std::optional(total) : std::nullopt;
}

std::string print_duration_ms(std::int64_t milliseconds) {
  if (milliseconds <= 0) return std::to_string(milliseconds) + (milliseconds == 0 ? "s" : "ms");
  std::string text;
  for (const auto& unit : kDurations) {
    if (milliseconds < unit.worth) continue;
    text += std::to_string(milliseconds / unit.worth) + std::string(unit.name);
    milliseconds %= unit.worth;
  }
  return text;
}

std::optional<std::int64_t> parse_size_bytes(std::string_view text) {
  if (text.empty() || text.front() == '-') return std::nullopt;
  std::size_t next = 0;
  const auto bytes = take_part(text, kSizes, &next, kMostBytes);
  return text.empty() ? bytes : std::nullopt;
}

std::string print_size_bytes(std::int64_t bytes) {
  for (const auto& unit : kSizes) {
    if (bytes > 0 && bytes % unit.worth == 0) return std::to_string(bytes / unit.worth) + std::string(unit.name);
  }
  return std::to_string(bytes) + "B";
}

std::string bytes_text(std::int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits{"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  // A value that would be rounded to 1024 of a unit is 1.0 of the next one.
  for (; value >= 1023.5 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  char text[32];
  // "10.4 GiB", which is not 10 GiB, but "80 GiB": a table has no room for a digit that says nothing.
  const bool is_round = std::fabs(value - std::round(value)) < 0.05;
  std::snprintf(text, sizeof text, value < 9.95 || (value < 99.95 && !is_round) ? "%.1f %s" : "%.0f %s", value,
                kUnits[unit]);
  return text;
}

}  // namespace base
