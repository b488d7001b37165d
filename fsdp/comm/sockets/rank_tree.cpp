#include "fsdp/comm/sockets/rank_tree.h"

#include <algorithm>

namespace fsdp {
namespace {

/// Where tree_sum() cuts, too.
int middle_of(int begin, int end) {
  return begin + (end - begin + 1) / 2;
}

}  // namespace

RankTree::RankTree(int rank, int world_size) : end(world_size) {
  bool is_whole = true;
  const auto cut = [&](int middle) {
    if (is_whole && (rank == 0 || rank == middle)) {
      other_top = rank == 0 ? middle : 0;
    } else if (rank == begin) {
      children.push_back({middle, end});
    } else if (rank == middle) {
      parent = begin;
    }
    is_whole = false;
    (rank < middle ? end : begin) = middle;
  };
  while (end - begin > 1) cut(middle_of(begin, end));
  end = children.empty() ? rank + 1 : children.front().end;
  std::ranges::reverse(children);
}

std::vector<int> RankTree::neighbours() const {
  std::vector<int> ranks;
  if (up() >= 0) ranks.push_back(up());
  for (const Child& child : children) ranks.push_back(child.rank);
  return ranks;
}

int RankTree::towards(int rank) const {
  const auto below =
      std::ranges::find_if(children, [&](const Child& child) { return child.rank <= rank && rank < child.end; });
  return below == children.end() ? up() : below->rank;
}

}  // namespace fsdp
