#include "agent/watch/plain_number.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

namespace agent::watch {
namespace {

constexpr double kLargestCount = 9e15;  // beyond, a double is no exact count

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// Without what stands around a number: blanks, brackets, quotes, the name of a type, and marks behind it.
std::string_view bare(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t([{'\"+");
  text.remove_prefix(std::min(begin, text.size()));
  for (const std::string_view type : {"tensor(", "array(", "np.float32(", "np.float64(", "Array("}) {
    if (text.starts_with(type)) return bare(text.substr(type.size()));
  }
  const auto end = text.find_last_not_of(" \t.,;:%)]}'\"");
  // A point belongs to the number: "2." is 2.
  return text.substr(0, end == std::string_view::npos ? 0 : end + 1);
}

/// "1,234.5" without its commas; nullopt: a comma stands elsewhere.
std::optional<std::string> without_thousands(std::string_view text) {
  std::string out;
  std::size_t digits = 0;  // since the last comma, or the beginning
  bool grouped = false, fraction = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '_' && at > 0 && is_digit(text[at - 1])) continue;
    if (c != ',') {
      if (is_digit(c)) ++digits;
      if (grouped && !fraction && digits > 3) return std::nullopt;
      if (!is_digit(c) && c != '-') {
        if (grouped && !fraction && digits != 3) return std::nullopt;
        fraction = true;
      }
      out += c;
      continue;
    }
    const bool begins_with_zero = !grouped && digits > 0 && text[at - digits] == '0';
    if (fraction || digits == 0 || digits > 3 || (grouped && digits != 3) || begins_with_zero) return std::nullopt;
    grouped = true;
    digits = 0;
  }
  if (grouped && !fraction && digits != 3) return std::nullopt;
  return out;
}

/// What stands for a power of ten behind a number; 0: it is something else.
double multiplier(std::string_view suffix) {
  constexpr std::array<std::pair<std::string_view, double>, 6> kAll{
      {{"", 1}, {"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}}};
  const auto* const found = std::ranges::find(kAll, suffix, &std::pair<std::string_view, double>::first);
  return found == kAll.end() ? 0 : found->second;
}

}  // namespace

std::optional<double> plain_number(std::string_view text) {
  constexpr std::string_view kMinus = "\xe2\x88\x92";
  std::string whole(bare(text));
  if (whole.starts_with(kMinus)) whole.replace(0, kMinus.size(), "-");
  const auto digits = without_thousands(whole);
  if (!digits) return std::nullopt;
  double value = 0;
  const auto* const end = digits->data() + digits->size();
  const auto [stop, error] = std::from_chars(digits->data(), end, value);
  if (error == std::errc::result_out_of_range) return std::numeric_limits<double>::quiet_NaN();
  if (error != std::errc()) return std::nullopt;
  const auto times = multiplier(std::string_view(stop, end));
  if (times == 0) return std::nullopt;
  return std::isfinite(value) ? value * times : std::numeric_limits<double>::quiet_NaN();
}

std::optional<std::int64_t> plain_count(std::string_view text) {
  const auto value = plain_number(text.substr(0, text.find('/')));
  if (!value || !(*value >= 0 && *value <= kLargestCount && *value == std::floor(*value))) return std::nullopt;
  return static_cast<std::int64_t>(*value);
}

}  // namespace agent::watch
