#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace contract {

// A checkpoint folder's fence: the oldest attempt that may still write there. musterd raises it; muster-task and
// muster-worker read it.
inline constexpr const char* kFenceFile = "FENCE";
/// Held (flock) by musterd while it raises the fence, shared by a worker while it commits a checkpoint.
inline constexpr const char* kFenceLock = "FENCE.lock";

inline std::string fence_text(std::int64_t attempt) {
  return "attempt " + std::to_string(attempt) + "\n";
}

/// The number in "attempt N\n"; nullopt for any other text.
inline std::optional<std::int64_t> parse_fence(std::string_view text) {
  constexpr std::string_view kWord = "attempt ";
  if (!text.starts_with(kWord) || !text.ends_with('\n')) return std::nullopt;
  text = text.substr(kWord.size(), text.size() - kWord.size() - 1);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace contract
