#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/chess/board.h"
#include "data/chess/notation.h"

namespace data::chess {

/// Moves of one game, read from a text.
struct Line {
  std::vector<Move> moves;
  Board last;          // after all moves
  std::string result;  // "1-0", "0-1", "1/2-1/2" or "*" if the text ends with one, else empty
};

/// Moves as one line of text. kSan has numbers, as PGN's movetext has: "1. e4 e5 2. Nf3". kUci has moves alone:
/// "e2e4 e7e5 g1f3". Each move must be legal after those before it. A line that starts with Black has "1... e5 2. Nf3".
std::string movetext(const Board& start, std::span<const Move> moves, Notation notation);

/// Reads such a text: moves, their numbers, and a result at the end. Words are separated by spaces or line feeds, and a
/// number may stand alone ("2. Nf3") or before its move ("2.Nf3"). Comments, variations and annotations are refused.
/// Returns nullopt for any other text, and writes into `why` the ply, the value and the remedy.
std::optional<Line> parse_movetext(const Board& start, std::string_view text, Notation notation,
                                   std::string* why = nullptr);

/// The part of a movetext before its move of this ply, 0 for the first: what a model is given to continue. "1. e4 e5 2.
/// " for ply 2 of "1. e4 e5 2. Nf3". nullopt if the text has no such move. Reads words alone and does not check moves.
std::optional<std::string_view> text_before(std::string_view movetext, std::size_t ply);

}  // namespace data::chess
