#include "data/prepare/text/text_source.h"

#include <cstdio>
#include <stdexcept>
#include <utility>

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
  std::string description = "chess games=" + std::to_string(options.games) + " seed=" + std::to_string(options.seed) +
                            " plies=" + std::to_string(options.player.plies) + " temperature=" + temperature +
                            " notation=" + (options.player.notation == chess::Notation::kSan ? "san" : "uci");
  return in_parts({RecordKind::kText, std::move(description), "made games of chess"}, options.games, kGamesAPart,
                  [options](std::int64_t number, const RecordSink& sink) {
                    const auto game = chess_game(options, number);
                    sink({game});
                  });
}

}  // namespace data::prepare
