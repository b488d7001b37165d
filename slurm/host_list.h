#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace slurm {

/// Longer host lists are refused instead of expanded, so "n[0-9999999]" cannot exhaust the memory.
inline constexpr std::size_t kMaxHosts = 65536;

/// Why a host list cannot be read, as a column and a text: "column 7: '[3-1' counts down".
struct HostListProblem {
  std::size_t column = 0;  // counted from 1
  std::string what{};
};
using Hosts = std::variant<std::vector<std::string>, HostListProblem>;

/// "node[1-3,07-09],gpu-a" -> node1 node2 node3 node07 node08 node09 gpu-a. A name may have several brackets
/// ("r[1-2]n[1-2]"); the last bracket varies fastest. An empty text, "(null)" and "None assigned" give no hosts. The
/// order and repeated names are kept.
Hosts expand_hosts(std::string_view text);

/// The inverse of expand_hosts(). Adjacent names with the same prefix and number of digits that count up by one share a
/// bracket.
/// expand_hosts(compress_hosts(x)) is x, for any names without commas, brackets and spaces.
std::string compress_hosts(const std::vector<std::string>& hosts);

}  // namespace slurm
