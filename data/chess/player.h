#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/chess/board.h"
#include "data/chess/notation.h"

namespace data::chess {

/// Why a game is over. Of the last two, FIDE lets a player claim the draw; here they end the game at once.
enum class Ending : std::uint8_t { kCheckmate, kStalemate, kInsufficientMaterial, kFiftyMoves, kThreefoldRepetition };

/// True if no sequence of moves can give checkmate, judged by pieces alone: two bare kings, one knight or bishop in
/// all, or only bishops that all stand on squares of one color.
bool has_insufficient_material(const Board& board);

/// Why the game is over at `now`, or nullopt. `earlier`: all positions of the game before `now`, for repetitions.
std::optional<Ending> ending(const Board& now, std::span<const Board> earlier);

/// The result of a game that is over, as PGN writes it: "1-0", "0-1" or "1/2-1/2". `last`: its last position.
std::string_view result_of(Ending ending, const Board& last);

struct PlayerOptions {
  int plies = 60;             // at most so many, 1 to 1,000; a game that is over has fewer
  double temperature = 0.35;  // in pawns, 0 to 100; 0 always takes a move of the best value
  Notation notation = Notation::kSan;
};

/// A game of the player against itself.
struct PlayedGame {
  std::vector<Move> moves;
  Board last;               // the position after all moves
  std::string_view result;  // "1-0", "0-1" or "1/2-1/2"; empty if the plies ran out first
};

/// Plays one game from the start position. Equal arguments give equal games on every machine.
///
/// The player values each legal move by what it captures, by where its piece goes and by whether it is attacked there,
/// and draws a move with a probability in proportion to exp(value / temperature). It looks one ply ahead, so it plays
/// legal and varied chess, not good chess. About 1 ms for 60 plies.
///
/// Throws std::invalid_argument for options outside their range.
PlayedGame play(std::uint64_t seed, const PlayerOptions& options = {});

/// The movetext of play(). kSan ends with the result of a game that is over: "1. e4 e5 2. Nf3 ... 27. Qh7# 1-0".
std::string game(std::uint64_t seed, const PlayerOptions& options = {});

}  // namespace data::chess
