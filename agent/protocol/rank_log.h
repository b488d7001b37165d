#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/whole_number.h"

namespace agent::protocol {

/// How the folders of attempts, and the logs of ranks in them, are named.
inline constexpr std::string_view kAttemptStart = "attempt-", kLogsFolder = "logs", kRankStart = "rank-",
                                  kLogEnd = ".log";

/// The number of the attempt whose folder that is: 1 for "/data/jobs/7/attempt-1". nullopt: it is none.
inline std::optional<std::int64_t> number_of_attempt_folder(std::string_view path) {
  const auto name = path.substr(path.rfind('/') + 1);
  if (!name.starts_with(kAttemptStart)) return std::nullopt;
  return base::whole_number<std::int64_t>(name.substr(kAttemptStart.size()));
}

/// The attempt folder of a rank's log: "/data/jobs/7/attempt-1" for "/data/jobs/7/attempt-1/logs/rank-0.log". Empty: it
/// is no log of a rank.
inline std::string attempt_of_log(std::string_view path) {
  const auto slash = path.rfind('/');
  if (slash == std::string_view::npos) return {};
  const auto name = path.substr(slash + 1), folder = path.substr(0, slash);
  if (!name.starts_with(kRankStart) || !name.ends_with(kLogEnd)) return {};
  const auto above = folder.rfind('/');
  if (above == std::string_view::npos || folder.substr(above + 1) != kLogsFolder) return {};
  return std::string(folder.substr(0, above));
}

}  // namespace agent::protocol
