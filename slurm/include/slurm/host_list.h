#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace slurm {

/// More hosts than this are refused rather than unfolded: "n[0-9999999]" costs nobody its memory.
inline constexpr std::size_t kMaxHosts = 65536;

/// Why a host list can't be read, with the place and its text: "column 7: '[3-1' counts down".
struct HostListProblem {
  std::size_t column = 0;  // counted from 1
  std::string what{};
};
using Hosts = std::variant<std::vector<std::string>, HostListProblem>;

/// "node[1-3,07-09],gpu-a" -> node1 node2 node3 node07 node08 node09 gpu-a. Several brackets a name are unfolded too
/// ("r[1-2]n[1-2]"), the last one fastest. An empty text, "(null)" and "None assigned" are no hosts. The order is kept,
/// and so are names that come twice.
Hosts expand_hosts(std::string_view text);

/// The other way round: neighbours that count up by one, with the same prefix and number of digits, become one bracket.
/// expand_hosts(compress_hosts(x)) is x, for any names without commas, brackets and spaces.
std::string compress_hosts(const std::vector<std::string>& hosts);

}  // namespace slurm
