#pragma once

#include <string>
#include <string_view>

namespace contract {

/// The attempt folder of a rank's log: "/data/jobs/7/attempt-1" for "/data/jobs/7/attempt-1/logs/rank-0.log". Empty: it
/// is no log of a rank.
inline std::string attempt_of_log(std::string_view path) {
  constexpr std::string_view kFolder = "/logs/", kRank = "rank-", kEnd = ".log";
  const auto slash = path.rfind('/');
  if (slash == std::string_view::npos) return {};
  const auto name = path.substr(slash + 1), folder = path.substr(0, slash + 1);
  if (!name.starts_with(kRank) || !name.ends_with(kEnd) || !folder.ends_with(kFolder)) return {};
  return std::string(folder.substr(0, folder.size() - kFolder.size()));
}

}  // namespace contract
