#pragma once

#include <cstdint>
#include <string_view>

#include "data/chess/notation.h"

namespace worker {

/// Moves of chess that a model was asked for, and how many of them were legal. Ranks add theirs.
struct LegalShare {
  std::int64_t legal = 0, asked = 0;

  LegalShare& operator+=(const LegalShare& that);

  /// From 0 to 1. 0 if nothing was asked.
  double share() const { return asked == 0 ? 0 : static_cast<double>(legal) / static_cast<double>(asked); }

  bool operator==(const LegalShare&) const = default;
};

/// Reads what a model writes after the beginning of a game, and counts its legal moves.
///
/// `prompt`: a movetext from the start position that ends where a move may begin, such as data::chess::text_before()
/// gives: "1. e4 e5 2. ". `reply`: what follows it: "Nf3 Nc6", or "Nf3 Nc6 3. Bb5 ...". Words are separated by spaces
/// or line feeds. Numbers of moves may be there and must be right. A move is accepted exactly as data::chess::of_san()
/// or of_uci() accepts it: "+" and "#" may be missing, but not wrong.
///
/// `moves`: how many are asked for, at least 1. Words after these are not read. After the first word that is no legal
/// move the position is unknown, so that move and all that are still asked for count as not legal, as do moves that
/// the reply lacks, and moves after a result. The game may be over after some moves; then no more are asked for.
///
/// A prompt that is no movetext, has a result or is over cannot be continued, so nothing is asked: {0, 0}. Never throws
/// for a text. Time: a legal move generation a move.
LegalShare count_legal_moves(std::string_view prompt, std::string_view reply, data::chess::Notation notation,
                             std::int64_t moves = 1);

}  // namespace worker
