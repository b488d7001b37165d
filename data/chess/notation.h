#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/chess/board.h"

namespace data::chess {

/// How moves are written. kSan: "Nf3", "exd5", "O-O", "e8=Q#", as in PGN. kUci: "g1f3", "e1g1", "e7e8q".
enum class Notation : std::uint8_t { kSan, kUci };

/// A legal move in standard algebraic notation, exactly as the PGN standard (1994), section 8.2.3, writes it: origin
/// file, rank or both only where another legal move needs it, "+" for check and "#" for checkmate.
std::string san(const Board& board, Move move);

/// A move as the Universal Chess Interface writes it. Castling is the king's move: "e1g1".
std::string uci(Move move);

/// Reads one move in standard algebraic notation. "+" and "#" may be missing, but not wrong. All else must be exactly
/// what san() writes. Returns nullopt for anything but a legal move, and writes into `why` the position, the value and
/// the legal moves that come near.
std::optional<Move> of_san(const Board& board, std::string_view text, std::string* why = nullptr);

/// Reads one move as the Universal Chess Interface writes it. Refuses as of_san() does.
std::optional<Move> of_uci(const Board& board, std::string_view text, std::string* why = nullptr);

/// san() or uci(), and of_san() or of_uci().
std::string print_move(const Board& board, Move move, Notation notation);
std::optional<Move> parse_move(const Board& board, std::string_view text, Notation notation,
                               std::string* why = nullptr);

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
