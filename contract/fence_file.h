#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace contract {

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

inline std::string fence_text(const Fence& fence) {
  return "job " + std::to_string(fence.job) + " attempt " + std::to_string(fence.attempt) + "\n";
}

/// The fence in "job J attempt N\n" or "attempt N\n"; nullopt for any other text.
inline std::optional<Fence> parse_fence(std::string_view text) {
  const auto take = [&text](std::string_view word, char after, std::int64_t& number) {
    if (!text.starts_with(word)) return false;
    text.remove_prefix(word.size());
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end == text.data() + text.size() || *end != after || number < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
    return true;
  };
  Fence fence;
  if (text.starts_with("job ") && !take("job ", ' ', fence.job)) return std::nullopt;
  if (!take("attempt ", '\n', fence.attempt) || !text.empty()) return std::nullopt;
  return fence;
}

}  // namespace contract
