#include "controller/stacks/compare.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace stacks {
namespace {

/// Ranks and groups beyond these are counted in a sentence.
constexpr std::size_t kMostNamedRanks = 8, kMostNamedGroups = 4;

/// What the ranks have at one depth; empty: the stack has ended above it.
std::string at_depth(const Place& place, std::size_t depth) {
  return depth < place.frames.size() ? place.frames[depth] : std::string();
}

std::string ranks_text(const std::vector<std::uint32_t>& ranks) {
  if (ranks.size() > kMostNamedRanks) return std::to_string(ranks.size()) + " ranks";
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) out += i + 1 == ranks.size() ? " and " : ", ";
    out += std::to_string(ranks[i]);
  }
  return out;
}

std::string stands(const Group& group) {
  std::string at = group.parts_at;
  if (group.innermost != group.parts_at) at += ", in " + group.innermost;
  return (group.ranks.size() == 1 ? " stands at " : " stand at ") + at;
}

}  // namespace

std::vector<Group> compare(const std::map<std::uint32_t, Place>& all) {
  std::map<std::uint32_t, const Place*> ranks;
  for (const auto& [rank, place] : all) {
    if (!place.frames.empty()) ranks.emplace(rank, &place);
  }
  if (ranks.empty()) return {};
  std::size_t deepest = 0;
  for (const auto& [rank, place] : ranks) deepest = std::max(deepest, place->frames.size());
  std::map<std::pair<Kind, std::string>, Group> groups;
  for (std::size_t depth = 0; depth < deepest && groups.size() < 2; ++depth) {
    groups.clear();
    for (const auto& [rank, place] : ranks) {
      auto& group = groups[{place->kind, at_depth(*place, depth)}];
      if (group.ranks.empty()) {
        group.innermost = place->frames.back();
        group.parts_at = depth < place->frames.size() ? place->frames[depth] : group.innermost;
      }
      group.ranks.push_back(rank);
    }
  }
  std::vector<Group> out;
  for (auto& [_, group] : groups) out.push_back(std::move(group));
  std::ranges::sort(out, [](const Group& a, const Group& b) {
    return a.ranks.size() != b.ranks.size() ? a.ranks.size() > b.ranks.size() : a.ranks < b.ranks;
  });
  return out;
}

std::string summary_of(const std::vector<Group>& groups) {
  if (groups.empty()) return "";
  if (groups.size() == 1) {
    const auto& all = groups.front();
    return (all.ranks.size() == 1 ? ranks_text(all.ranks) : "all " + std::to_string(all.ranks.size()) + " ranks") +
           stands(all);
  }
  // Those that are fewer first: they are what is looked for.
  std::string out;
  std::size_t named = 0;
  for (std::size_t i = groups.size(); i-- > 1 && named < kMostNamedGroups; ++named) {
    out += (out.empty() ? "" : "; ") + ranks_text(groups[i].ranks) + stands(groups[i]);
  }
  if (groups.size() - 1 > named) out += "; " + std::to_string(groups.size() - 1 - named) + " more places";
  return out + "; " + ranks_text(groups.front().ranks) + stands(groups.front());
}

}  // namespace stacks
