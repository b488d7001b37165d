#pragma once

#include <cstdint>

#include "data/chess/board.h"

namespace data::chess {

/// The number of games of exactly `depth` plies that begin at this position. Each depth has published numbers, which
/// show that a generator of legal moves is right. Costs about 50 ns for each position at the last ply.
std::uint64_t perft(const Board& board, int depth);

}  // namespace data::chess
