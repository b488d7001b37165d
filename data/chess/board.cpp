#include "data/chess/board.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace data::chess {
namespace {

constexpr Square kA1 = 0, kE1 = 4, kH1 = 7, kA8 = 56, kE8 = 60, kH8 = 63;

/// Where the rook stands before and after a king castles to this square.
struct RookMove {
  Square from;
  Square to;
};
RookMove rook_of_castling(Square king_to) {
  const bool king_side = file_of(king_to) == 6;
  return {step(king_to, king_side ? 1 : -2, 0), step(king_to, king_side ? -1 : 1, 0)};
}

}  // namespace

std::string name_of(Square square) {
  return {static_cast<char>('a' + file_of(square)), static_cast<char>('1' + rank_of(square))};
}

Square square_of(std::string_view name) {
  if (name.size() != 2 || name[0] < 'a' || name[0] > 'h' || name[1] < '1' || name[1] > '8') return kNoSquare;
  return static_cast<Square>((name[1] - '1') * 8 + (name[0] - 'a'));
}

Board Board::start() {
  return *of_fen("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1");
}

void Board::put(Square square, Piece piece) {
  pieces_[static_cast<std::uint8_t>(square)] = piece;
  if (piece.kind == Kind::kKing) kings_[static_cast<std::size_t>(piece.color)] = square;
}

bool Board::attacked(Square square, Color by) const {
  const auto stands = [&](Square from, Kind kind) { return from != kNoSquare && at(from) == Piece{kind, by}; };
  for (const int files : {-1, 1}) {
    if (stands(step(square, files, -forward(by)), Kind::kPawn)) return true;
  }
  for (const auto& [files, ranks] : kKnightSteps) {
    if (stands(step(square, files, ranks), Kind::kKnight)) return true;
  }
  for (const auto& [files, ranks] : kDirections) {
    auto from = step(square, files, ranks);
    if (stands(from, Kind::kKing)) return true;
    while (from != kNoSquare && at(from).kind == Kind::kNone) from = step(from, files, ranks);
    if (stands(from, Kind::kQueen) || stands(from, files == 0 || ranks == 0 ? Kind::kRook : Kind::kBishop)) return true;
  }
  return false;
}

Board Board::placed(Move move) const {
  Board next = *this;
  Piece piece = at(move.from);
  next.put(move.from, {});
  if (piece.kind == Kind::kPawn && move.to == en_passant_) next.put(step(move.to, 0, -forward(turn_)), {});
  if (piece.kind == Kind::kKing && std::abs(move.to - move.from) == 2) {
    const auto rook = rook_of_castling(move.to);
    next.put(rook.to, at(rook.from));
    next.put(rook.from, {});
  }
  if (move.promotion != Kind::kNone) piece.kind = move.promotion;
  next.put(move.to, piece);
  return next;
}

bool Board::is_safe(Move move) const {
  const auto next = placed(move);
  return !next.attacked(next.king(turn_), other(turn_));
}

bool Board::has_en_passant_capture() const {
  if (en_passant_ == kNoSquare) return false;
  for (const int files : {-1, 1}) {
    const auto from = step(en_passant_, files, -forward(turn_));
    if (from != kNoSquare && at(from) == Piece{Kind::kPawn, turn_} && is_safe({from, en_passant_})) return true;
  }
  return false;
}

Board Board::after(Move move) const {
  const auto kind = at(move.from).kind;
  Board next = placed(move);
  next.quiet_plies_ = kind == Kind::kPawn || at(move.to).kind != Kind::kNone ? 0 : quiet_plies_ + 1;
  if (turn_ == Color::kBlack) ++next.number_;
  next.turn_ = other(turn_);

  // A right is gone once its king or rook has moved, or its rook was captured.
  const auto touched = [&](Square square) { return move.from == square || move.to == square; };
  const auto lose = [&](Color color, Side side) { next.castling_ &= static_cast<std::uint8_t>(~right(color, side)); };
  if (touched(kE1) || touched(kH1)) lose(Color::kWhite, Side::kKing);
  if (touched(kE1) || touched(kA1)) lose(Color::kWhite, Side::kQueen);
  if (touched(kE8) || touched(kH8)) lose(Color::kBlack, Side::kKing);
  if (touched(kE8) || touched(kA8)) lose(Color::kBlack, Side::kQueen);

  next.en_passant_ = kNoSquare;
  if (kind == Kind::kPawn && std::abs(move.to - move.from) == 16) {
    next.en_passant_ = static_cast<Square>((move.from + move.to) / 2);
    if (!next.has_en_passant_capture()) next.en_passant_ = kNoSquare;
  }
  return next;
}

bool Board::same_position(const Board& that) const {
  return pieces_ == that.pieces_ && turn_ == that.turn_ && castling_ == that.castling_ &&
         en_passant_ == that.en_passant_;
}

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
