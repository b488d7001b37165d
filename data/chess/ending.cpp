#include "data/chess/ending.h"

#include <algorithm>

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

}  // namespace data::chess
