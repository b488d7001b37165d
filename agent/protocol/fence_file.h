#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace agent::protocol {

// A checkpoint folder's fence: the job that the folder belongs to, and the job's oldest attempt that may still write
// there. musterd raises it; muster-task and muster-worker read it.
inline constexpr const char* kFenceFile = "FENCE";
/// Held (flock) by musterd while it raises the fence, shared by a worker while it commits a checkpoint.
inline constexpr const char* kFenceLock = "FENCE.lock";

/// Attempt `attempt` of job `job`.
struct Fence {
  std::int64_t job = 0;  ///< 0: the file does not name the job, as musterd once wrote it
  std::int64_t attempt = 0;
  /// Whether this attempt of this job may write into the folder.
  bool lets(std::int64_t of_job, std::int64_t its_attempt) const {
    return (job == 0 || job == of_job) && attempt <= its_attempt;
  }
  bool operator==(const Fence&) const = default;
};

/// Of a text, FNV-1a of 32 bits, as eight hexadecimal digits: a digit that the disk has changed is found.
inline std::string fence_check(std::string_view text) {
  std::uint32_t sum = 2166136261U;
  for (const char c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 16777619U;
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string digits;
  for (int shift = 28; shift >= 0; shift -= 4) digits += kDigits[(sum >> shift) & 15U];
  return digits;
}

inline std::string fence_text(const Fence& fence) {
  const auto text = "job " + std::to_string(fence.job) + " attempt " + std::to_string(fence.attempt);
  return text + " check " + fence_check(text) + "\n";
}

/// The fence in "job J attempt N check C\n", "job J attempt N\n" or "attempt N\n"; nullopt for any other text, and
/// where the check is not that of the text before it. The forms without a check are of an earlier musterd.
inline std::optional<Fence> parse_fence(std::string_view text) {
  const auto take = [&text](std::string_view word, std::int64_t& number) {
    if (!text.starts_with(word)) return false;
    text.remove_prefix(word.size());
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || number < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return true;
  };
  const auto whole = text;
  Fence fence;
  const bool names_job = text.starts_with("job ");
  if (names_job && !take("job ", fence.job)) return std::nullopt;
  if (!take(names_job ? " attempt " : "attempt ", fence.attempt)) return std::nullopt;
  if (text == "\n") return fence;
  const auto summed = whole.substr(0, whole.size() - text.size());
  return text == " check " + fence_check(summed) + "\n" ? std::optional(fence) : std::nullopt;
}

}  // namespace agent::protocol
