#include "data/chess/moves.h"

#include <algorithm>
#include <utility>

namespace data::chess {
namespace {

/// Collects the moves that follow from how pieces move, whether or not they leave the own king attacked.
class PseudoLegal {
 public:
  explicit PseudoLegal(const Board& board) : board_(board), us_(board.turn()) { moves_.reserve(64); }

  std::vector<Move> all() {
    for (Square from = 0; from < 64; ++from) {
      const auto piece = board_.at(from);
      if (piece.kind == Kind::kNone || piece.color != us_) continue;
      add_moves_of(piece.kind, from);
    }
    return std::move(moves_);
  }

 private:
  void add_moves_of(Kind kind, Square from) {
    switch (kind) {
      case Kind::kNone:
        return;
      case Kind::kPawn:
        return add_pawn(from);
      case Kind::kKnight:
        for (const auto& [files, ranks] : kKnightSteps) add_unless_own(from, step(from, files, ranks));
        return;
      case Kind::kBishop:
        return add_slides(from, 4, 8);
      case Kind::kRook:
        return add_slides(from, 0, 4);
      case Kind::kQueen:
        return add_slides(from, 0, 8);
      case Kind::kKing:
        for (const auto& [files, ranks] : kDirections) add_unless_own(from, step(from, files, ranks));
        add_castling(from, Side::kKing);
        add_castling(from, Side::kQueen);
        return;
    }
  }

  // Both are false off the board.
  bool is_empty(Square square) const { return square != kNoSquare && board_.at(square).kind == Kind::kNone; }
  bool is_theirs(Square square) const {
    return square != kNoSquare && board_.at(square).kind != Kind::kNone && board_.at(square).color != us_;
  }

  void add_unless_own(Square from, Square to) {
    if (is_empty(to) || is_theirs(to)) moves_.push_back({from, to});
  }

  /// The moves along the directions [first, last) of kDirections.
  void add_slides(Square from, std::size_t first, std::size_t last) {
    for (auto at = first; at < last; ++at) {
      const auto& [files, ranks] = kDirections[at];
      auto to = step(from, files, ranks);
      for (; is_empty(to); to = step(to, files, ranks)) moves_.push_back({from, to});
      add_unless_own(from, to);
    }
  }

  void add_pawn_to(Square from, Square to) {
    if (rank_of(to) != 0 && rank_of(to) != 7) {
      moves_.push_back({from, to});
      return;
    }
    for (const auto kind : {Kind::kQueen, Kind::kRook, Kind::kBishop, Kind::kKnight})
      moves_.push_back({from, to, kind});
  }

  void add_pawn(Square from) {
    const auto one = step(from, 0, forward(us_));
    if (is_empty(one)) {
      add_pawn_to(from, one);
      const auto two = step(one, 0, forward(us_));
      if (rank_of(from) == (us_ == Color::kWhite ? 1 : 6) && is_empty(two)) moves_.push_back({from, two});
    }
    for (const int files : {-1, 1}) {
      const auto to = step(from, files, forward(us_));
      if (to != kNoSquare && (is_theirs(to) || to == board_.en_passant())) add_pawn_to(from, to);
    }
  }

  /// The king may castle if no piece stands between it and its rook, and no square on its way is attacked. Its last
  /// square is left to the check that each move gets.
  void add_castling(Square from, Side side) {
    if (!board_.may_castle(us_, side)) return;
    const int files = side == Side::kKing ? 1 : -1;
    const auto passed = step(from, files, 0);
    const auto to = step(from, 2 * files, 0);
    if (!is_empty(passed) || !is_empty(to)) return;
    if (side == Side::kQueen && !is_empty(step(from, -3, 0))) return;
    if (board_.attacked(from, other(us_)) || board_.attacked(passed, other(us_))) return;
    moves_.push_back({from, to});
  }

  const Board& board_;
  const Color us_;
  std::vector<Move> moves_;
};

}  // namespace

std::vector<Move> Board::legal_moves() const {
  auto moves = PseudoLegal(*this).all();
  moves.erase(std::remove_if(moves.begin(), moves.end(), [&](Move move) { return !is_safe(move); }), moves.end());
  return moves;
}

std::uint64_t perft(const Board& board, int depth) {
  if (depth <= 0) return 1;
  const auto moves = board.legal_moves();
  if (depth == 1) return moves.size();
  std::uint64_t games = 0;
  for (const auto move : moves) games += perft(board.after(move), depth - 1);
  return games;
}

}  // namespace data::chess
