#pragma once
#include <vector>

namespace fsdp {

/// A rank's place in the tree of its group.
///
/// [Note: tree of ranks] A range of ranks [begin, end) is cut into a first and a second half, the first one rank larger
/// where their number is odd. The first rank of a range speaks for it. So the first rank of the second half is a child
/// of the first rank of the range. A sum that each rank makes of its own value and those of its children, the nearest
/// child first, has the order of tree_sum(): ((0 + 1) + (2 + 3)). Its bits are those of every other transport on the
/// CPU. The two halves of the whole group have no rank above them. Their first ranks, the tops, exchange what they
/// have, which saves one way. So a group of N ranks has N-1 connections, and a rank at most log2(N) of them, rounded
/// up.
struct RankTree {
  /// Ranks [rank, end), for which `rank` speaks.
  struct Child {
    int rank = 0, end = 0;
  };
  int begin = 0, end = 1;       // the ranks for which this one speaks; `begin` is the rank itself
  int parent = -1;              // negative: a top
  int other_top = -1;           // of a top; negative: there is none
  std::vector<Child> children;  // the nearest one first

  /// The place of `rank` among `world_size` ranks.
  RankTree(int rank, int world_size);

  /// Where what this rank and its children have goes: the parent or the other top.
  int up() const { return parent >= 0 ? parent : other_top; }
  /// All that this rank has a connection to.
  std::vector<int> neighbours() const;
  /// The neighbour on the way to `rank`, which is another one.
  int towards(int rank) const;
};

}  // namespace fsdp
