#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "data/chess/board.h"

namespace data::chess {

/// Why a game is over. Of the last two, FIDE lets a player claim the draw; here they end the game at once.
enum class Ending : std::uint8_t { kCheckmate, kStalemate, kInsufficientMaterial, kFiftyMoves, kThreefoldRepetition };

/// Whether no sequence of moves can give checkmate, judged by pieces alone: two bare kings, one knight or bishop in
/// all, or only bishops that all stand on squares of one color.
bool has_insufficient_material(const Board& board);

/// Why the game is over at `now`, or nullopt. `earlier`: all positions of the game before `now`, for repetitions.
std::optional<Ending> ending(const Board& now, std::span<const Board> earlier);

/// The result of a game that is over, as PGN writes it: "1-0", "0-1" or "1/2-1/2". `last`: its last position.
std::string_view result_of(Ending ending, const Board& last);

}  // namespace data::chess
