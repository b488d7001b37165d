#include "data/prepare/text/chess_games.h"

#include <cstdio>
#include <stdexcept>

#include "data/order/random.h"

namespace data::prepare {
namespace {

constexpr std::int64_t kGamesAPart = 10'000;
constexpr std::int64_t kMostGames = 1'000'000'000;

}  // namespace

std::string chess_game(const ChessGamesOptions& options, std::int64_t number) {
  const auto game = order::splitmix((static_cast<std::uint64_t>(number) + 1) * order::kSplitmixStride);
  return chess::game(order::splitmix(options.seed + order::kSplitmixStride) ^ game, options.player);
}

TextSource open_chess_games(const ChessGamesOptions& options) {
  check_range("games", options.games, 1, kMostGames);
  try {
    chess::game(options.seed, options.player);
  } catch (const std::invalid_argument& wrong) {
    throw std::runtime_error(wrong.what());
  }
  char temperature[32];
  std::snprintf(temperature, sizeof temperature, "%.17g", options.player.temperature);
  const bool is_san = options.player.notation == chess::Notation::kSan;
  return {RecordKind::kText,
          std::string("chess games=") + std::to_string(options.games) + " seed=" + std::to_string(options.seed) +
              " plies=" + std::to_string(options.player.plies) + " temperature=" + temperature +
              " notation=" + (is_san ? "san" : "uci"),
          "made games of chess",
          {},
          parts_of(options.games, kGamesAPart),
          [options](std::int64_t part, const RecordSink& sink) {
            const auto [first, last] = items_of_part(part, options.games, kGamesAPart);
            for (auto i = first; i < last; ++i) {
              const auto game = chess_game(options, i);
              sink({game});
            }
          }};
}

}  // namespace data::prepare
