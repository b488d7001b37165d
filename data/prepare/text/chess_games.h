#pragma once

#include <cstdint>

#include "data/chess/player.h"
#include "data/prepare/text/text_source.h"

namespace data::prepare {

struct ChessGamesOptions {
  std::int64_t games = 10'000;  // 1 to 1,000,000,000
  std::uint64_t seed = 0;
  chess::PlayerOptions player = {};
};

/// Games of chess::play(), a movetext a record: "1. e4 e5 2. Nf3 ... 27. Qh7# 1-0". A game is a pure function of the
/// options' seed and player and of its number, on every machine. A part has 10,000 games. Throws std::runtime_error
/// naming an option outside its range.
TextSource open_chess_games(const ChessGamesOptions& options = {});

/// Game `number` of them, from 0.
std::string chess_game(const ChessGamesOptions& options, std::int64_t number);

}  // namespace data::prepare
