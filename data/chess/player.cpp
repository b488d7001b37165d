#include "data/chess/player.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace data::chess {
namespace {

constexpr int kFiftyMovesInPlies = 100;

}  // namespace

bool has_insufficient_material(const Board& board) {
  int knights = 0;
  std::array<int, 2> bishops{};  // on dark and light squares
  for (Square square = 0; square < 64; ++square) {
    switch (board.at(square).kind) {
      case Kind::kNone:
      case Kind::kKing:
        break;
      case Kind::kKnight:
        ++knights;
        break;
      case Kind::kBishop:
        ++bishops[static_cast<std::size_t>((file_of(square) + rank_of(square)) % 2)];
        break;
      default:
        return false;
    }
  }
  if (knights > 0) return knights == 1 && bishops[0] + bishops[1] == 0;
  return bishops[0] == 0 || bishops[1] == 0;
}

std::optional<Ending> ending(const Board& now, std::span<const Board> earlier) {
  if (now.legal_moves().empty()) return now.in_check() ? Ending::kCheckmate : Ending::kStalemate;
  if (has_insufficient_material(now)) return Ending::kInsufficientMaterial;
  if (now.quiet_plies() >= kFiftyMovesInPlies) return Ending::kFiftyMoves;
  const auto same = std::count_if(earlier.begin(), earlier.end(), [&](const Board& b) { return b.same_position(now); });
  if (same >= 2) return Ending::kThreefoldRepetition;
  return std::nullopt;
}

std::string_view result_of(Ending ending, const Board& last) {
  if (ending != Ending::kCheckmate) return "1/2-1/2";
  return last.turn() == Color::kBlack ? "1-0" : "0-1";
}

namespace {

constexpr int kMostPlies = 1000;
constexpr double kHighestTemperature = 100;
constexpr int kCheckmate = 10'000;
constexpr double kWeightOfBest = 1 << 20;

/// Values are in hundredths of a pawn.
int worth(Kind kind) {
  constexpr std::array<int, 7> kWorth{0, 100, 320, 330, 500, 900, 0};
  return kWorth[static_cast<std::size_t>(kind)];
}

/// The worth of a square to a piece: pawns like the centre and the last ranks, minor pieces the centre, a rook the
/// seventh rank, a king the corners of its first rank.
int worth_there(Piece piece, Square square) {
  const int file = file_of(square);
  const int rank = piece.color == Color::kWhite ? rank_of(square) : 7 - rank_of(square);
  const int from_centre = std::max(std::abs(2 * file - 7), std::abs(2 * rank - 7)) / 2;  // 0 to 3
  const bool is_central = file == 3 || file == 4;
  switch (piece.kind) {
    case Kind::kPawn:
      return (rank - 1) * (is_central ? 12 : file == 2 || file == 5 ? 5 : 2) + (rank == 6 ? 50 : 0);
    case Kind::kKnight:
      return -20 * from_centre;
    case Kind::kBishop:
      return -10 * from_centre;
    case Kind::kRook:
      return rank == 6 ? 20 : is_central ? 5 : 0;
    case Kind::kQueen:
      return -5 * from_centre;
    case Kind::kKing:
      return rank > 0 ? -20 * rank : file == 6 || file == 2 ? 40 : file == 4 ? 0 : -15;
    default:
      return 0;
  }
}

int value_of(const Board& board, Move move) {
  const auto piece = board.at(move.from);
  const auto next = board.after(move);
  const auto placed = next.at(move.to);
  int value = worth(board.at(move.to).kind) + worth(placed.kind) - worth(piece.kind);
  value += worth_there(placed, move.to) - worth_there(piece, move.from);
  // A piece that can be taken back is half lost.
  if (next.attacked(move.to, next.turn())) value -= worth(placed.kind) / 2;
  if (next.in_check() && next.legal_moves().empty()) value += kCheckmate;
  return value;
}

/// The finalizer of splitmix64 (Steele, Lea and Flood, 2014).
std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}
constexpr std::uint64_t kStride = 0x9e3779b97f4a7c15ull;

/// The move that this random number chooses. Weights are whole numbers, because the last digits of exp() differ between
/// machines and would, once in many games, give another move.
Move choose(const Board& board, const std::vector<Move>& legal, double temperature, std::uint64_t random) {
  std::vector<int> values;
  for (const auto move : legal) values.push_back(value_of(board, move));
  const int best = *std::max_element(values.begin(), values.end());
  std::vector<std::uint64_t> weights;
  std::uint64_t sum = 0;
  for (const int value : values) {
    const double behind = (best - value) / 100.0;
    const double share = behind == 0 ? 1 : temperature == 0 ? 0 : std::exp(-behind / temperature);
    weights.push_back(static_cast<std::uint64_t>(std::llround(share * kWeightOfBest)));
    sum += weights.back();
  }
  auto left = random % sum;
  std::size_t at = 0;
  for (; left >= weights[at]; ++at) left -= weights[at];
  return legal[at];
}

void check(const PlayerOptions& options) {
  if (options.plies < 1 || options.plies > kMostPlies) {
    throw std::invalid_argument("chess player: " + std::to_string(options.plies) + " plies; ask for 1 to " +
                                std::to_string(kMostPlies));
  }
  if (!(options.temperature >= 0 && options.temperature <= kHighestTemperature)) {
    throw std::invalid_argument("chess player: temperature " + std::to_string(options.temperature) +
                                "; ask for 0 to 100 pawns");
  }
}

}  // namespace

PlayedGame play(std::uint64_t seed, const PlayerOptions& options) {
  check(options);
  const auto key = mix(seed + kStride);
  PlayedGame game{{}, Board::start(), {}};
  std::vector<Board> earlier;
  for (int ply = 0; ply < options.plies; ++ply) {
    const auto random = mix(key + static_cast<std::uint64_t>(ply + 1) * kStride);
    const auto move = choose(game.last, game.last.legal_moves(), options.temperature, random);
    earlier.push_back(game.last);
    game.last = game.last.after(move);
    game.moves.push_back(move);
    if (const auto over = ending(game.last, earlier)) {
      game.result = result_of(*over, game.last);
      break;
    }
  }
  return game;
}

std::string game(std::uint64_t seed, const PlayerOptions& options) {
  const auto played = play(seed, options);
  auto text = movetext(Board::start(), played.moves, options.notation);
  if (options.notation == Notation::kSan && !played.result.empty()) text.append(" ").append(played.result);
  return text;
}

}  // namespace data::chess
