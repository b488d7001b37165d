#pragma once

#include <optional>
#include <string>
#include <string_view>

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

}  // namespace data::chess
