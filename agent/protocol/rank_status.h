#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spec/exit_codes.h"

namespace agent::protocol {

/// How far a rank's program has come, as muster-task saw it. muster-task tells musterd the same by gRPC; musterd reads
/// the file when it was away or a message was lost.
struct RankStatus {
  enum class State { kRunning, kExited, kStepLost };
  State state = State::kRunning;
  std::string node;
  std::int64_t pid = 0;
  spec::ExitStatus exit;          // of kExited and kStepLost
  std::int64_t ended_at_ms = 0;   // since 1970, by the node's clock; 0: not ended
  bool out_of_memory = false;     // the kernel killed it for memory
  std::vector<int> signals_seen;  // from outside, in order
  std::string trouble;            // why it could not be started; empty otherwise
  std::string error;              // the program's own words about its end; empty: it left none
  bool operator==(const RankStatus&) const = default;
};

/// <attempt>/ranks, and <attempt>/ranks/rank-<n>.json.
std::filesystem::path rank_status_folder(const std::filesystem::path& attempt_folder);
std::filesystem::path rank_status_file(const std::filesystem::path& attempt_folder, std::uint32_t rank);

/// Text that is not UTF-8 is written with replacement characters.
std::string to_text(const RankStatus& status);
/// nullopt: the text is no such file's, or of another format. Files of older versions have fewer keys.
std::optional<RankStatus> parse_rank_status(std::string_view text);

}  // namespace agent::protocol
