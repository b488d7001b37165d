#include "data/chess/board.h"

#include <algorithm>
#include <charconv>
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

// Forsyth-Edwards notation, as the PGN standard (1994), section 16.1, defines it.
namespace {

constexpr std::size_t kFields = 6;
constexpr std::size_t kMostBytes = 128;  // the longest FEN has 92
constexpr int kMostCount = 9999;         // of both counters: no game of people or programs is as long

constexpr std::array<std::string_view, kFields> kFieldNames{"pieces",     "color to move",  "castling",
                                                            "en passant", "halfmove clock", "number of the move"};

std::string in_field(std::size_t field, std::string_view message) {
  return "FEN, field " + std::to_string(field + 1) + " (" + std::string(kFieldNames[field]) +
         "): " + std::string(message);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::optional<int> count_of(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_plain = !text.empty() && is_digit(text[0]) && (text.size() == 1 || text[0] != '0');
  if (!is_plain || error != std::errc() || end != text.data() + text.size() || value > kMostCount) return std::nullopt;
  return value;
}

/// Writes the pieces of one rank into `pieces`. Returns what is wrong, or nothing.
std::string read_rank(std::string_view text, std::array<Piece, 8>& pieces) {
  std::size_t file = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    const char letter = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    if (c >= '1' && c <= '8') {
      if (at > 0 && is_digit(text[at - 1])) return quoted(text) + " has two digits in a row; write their sum";
      file += static_cast<std::size_t>(c - '0');
    } else if (const auto kind = kind_of(letter); kind != Kind::kNone) {
      if (file < 8) pieces[file] = {kind, c == letter ? Color::kWhite : Color::kBlack};
      ++file;
    } else {
      return quoted(text) + " contains " + quoted({&c, 1}) + "; use the pieces PNBRQKpnbrqk and the digits 1 to 8";
    }
  }
  if (file != 8) return quoted(text) + " has " + std::to_string(file) + " squares; a rank has 8";
  return {};
}

/// The problem with the number of pieces of a color, or nothing.
std::string count_pieces(const std::array<Piece, 64>& pieces, Color color) {
  const auto count = [&](Kind kind) { return std::count(pieces.begin(), pieces.end(), Piece{kind, color}); };
  const auto all = std::count_if(pieces.begin(), pieces.end(),
                                 [&](Piece piece) { return piece.kind != Kind::kNone && piece.color == color; });
  const auto problem = [&](std::int64_t number, const char* what) {
    return std::string(name_of(color)) + " has " + std::to_string(number) + " " + what;
  };
  if (count(Kind::kKing) != 1) return problem(count(Kind::kKing), "kings; give each color exactly one");
  if (count(Kind::kPawn) > 8) return problem(count(Kind::kPawn), "pawns; give each color at most 8");
  if (all > 16) return problem(all, "pieces; give each color at most 16");
  return {};
}

}  // namespace

std::string Board::read_pieces(std::string_view field) {
  const auto ranks = split(field, '/');
  if (ranks.size() != 8) {
    return quoted(field) + " has " + std::to_string(ranks.size()) + " ranks; write 8 with a slash between two";
  }
  for (int at = 0; at < 8; ++at) {
    const int rank = 7 - at;
    std::array<Piece, 8> pieces{};
    const auto problem = read_rank(ranks[static_cast<std::size_t>(at)], pieces);
    if (!problem.empty()) return "rank " + std::to_string(rank + 1) + ": " + problem;
    for (int file = 0; file < 8; ++file) {
      const auto piece = pieces[static_cast<std::size_t>(file)];
      const auto square = static_cast<Square>(rank * 8 + file);
      if (piece.kind == Kind::kPawn && (rank == 0 || rank == 7)) {
        return "a pawn stands on " + name_of(square) + "; pawns stand on ranks 2 to 7";
      }
      put(square, piece);
    }
  }
  for (const auto color : {Color::kWhite, Color::kBlack}) {
    if (auto problem = count_pieces(pieces_, color); !problem.empty()) return problem;
  }
  return {};
}

std::string Board::read_castling(std::string_view field) {
  constexpr std::string_view kAll = "KQkq";
  if (field == "-") return {};
  std::size_t next = 0;
  for (const char c : field) {
    const auto found = kAll.find(c, next);
    if (found == std::string_view::npos) return quoted(field) + "; write letters of KQkq in this order, or -";
    next = found + 1;
    const auto color = found < 2 ? Color::kWhite : Color::kBlack;
    const auto side = found % 2 == 0 ? Side::kKing : Side::kQueen;
    const int home = color == Color::kWhite ? 0 : 56;
    const auto king_home = static_cast<Square>(home + 4);
    const auto rook_home = static_cast<Square>(home + (side == Side::kKing ? 7 : 0));
    if (king(color) != king_home || at(rook_home) != Piece{Kind::kRook, color}) {
      return quoted(field) + " has " + c + ", but no " + std::string(name_of(color)) + " king on " +
             name_of(king_home) + " with a rook on " + name_of(rook_home) + "; leave out " + c;
    }
    castling_ |= right(color, side);
  }
  return field.empty() ? "is empty; write letters of KQkq, or -" : "";
}

std::string Board::read_en_passant(std::string_view field) {
  if (field == "-") return {};
  const auto square = square_of(field);
  const int rank = turn_ == Color::kWhite ? 5 : 2;
  const auto wanted = "; write the square behind a pawn that has just moved two ranks, or -";
  if (square == kNoSquare) return quoted(field) + " is no square" + wanted;
  if (rank_of(square) != rank) {
    return quoted(field) + " is not on rank " + std::to_string(rank + 1) + ", though " + std::string(name_of(turn_)) +
           " is to move" + wanted;
  }
  const auto pawn = step(square, 0, -forward(turn_));
  const auto origin = step(square, 0, forward(turn_));
  const bool has_moved =
      at(pawn) == Piece{Kind::kPawn, other(turn_)} && at(square).kind == Kind::kNone && at(origin).kind == Kind::kNone;
  if (!has_moved)
    return quoted(field) + ": no pawn can have moved from " + name_of(origin) + " to " + name_of(pawn) + wanted;
  en_passant_ = square;
  if (!has_en_passant_capture()) en_passant_ = kNoSquare;
  return {};
}

std::optional<Board> Board::of_fen(std::string_view text, std::string* why) {
  if (text.size() > kMostBytes) {
    return refuse(why, "FEN " + quoted(text) + " has " + std::to_string(text.size()) + " bytes; no FEN has more than " +
                           std::to_string(kMostBytes));
  }
  const auto fields = split(text, ' ');
  if (fields.size() != kFields) {
    return refuse(why, "FEN " + quoted(text) + " has " + std::to_string(fields.size()) +
                           " fields; write 6 with one space between two: pieces, color to move, castling, en passant, "
                           "halfmove clock, number of the move");
  }
  Board board;
  if (const auto problem = board.read_pieces(fields[0]); !problem.empty()) return refuse(why, in_field(0, problem));
  if (fields[1] != "w" && fields[1] != "b") return refuse(why, in_field(1, quoted(fields[1]) + "; write w or b"));
  board.turn_ = fields[1] == "w" ? Color::kWhite : Color::kBlack;
  if (const auto problem = board.read_castling(fields[2]); !problem.empty()) return refuse(why, in_field(2, problem));
  if (const auto problem = board.read_en_passant(fields[3]); !problem.empty()) return refuse(why, in_field(3, problem));

  const auto quiet_plies = count_of(fields[4]);
  if (!quiet_plies) return refuse(why, in_field(4, quoted(fields[4]) + "; write a whole number from 0 to 9999"));
  const auto number = count_of(fields[5]);
  if (!number || *number == 0) {
    return refuse(why, in_field(5, quoted(fields[5]) + "; write a whole number from 1 to 9999"));
  }
  board.quiet_plies_ = *quiet_plies;
  board.number_ = *number;

  const auto waiting = other(board.turn_);
  if (board.attacked(board.king(waiting), board.turn_)) {
    return refuse(why, in_field(1, quoted(fields[1]) + ", but " + std::string(name_of(waiting)) +
                                       "'s king is in check already; let " + std::string(name_of(waiting)) + " move"));
  }
  return board;
}

std::string Board::fen() const {
  std::string text;
  for (int rank = 7; rank >= 0; --rank) {
    int empty = 0;
    const auto end_gap = [&] {
      if (empty > 0) text += std::to_string(empty);
      empty = 0;
    };
    for (int file = 0; file < 8; ++file) {
      const auto piece = at(static_cast<Square>(rank * 8 + file));
      if (piece.kind == Kind::kNone) {
        ++empty;
        continue;
      }
      end_gap();
      const char letter = letter_of(piece.kind);
      text += piece.color == Color::kWhite ? letter : static_cast<char>(letter - 'A' + 'a');
    }
    end_gap();
    if (rank > 0) text += '/';
  }
  std::string castling;
  if (may_castle(Color::kWhite, Side::kKing)) castling += 'K';
  if (may_castle(Color::kWhite, Side::kQueen)) castling += 'Q';
  if (may_castle(Color::kBlack, Side::kKing)) castling += 'k';
  if (may_castle(Color::kBlack, Side::kQueen)) castling += 'q';
  text += turn_ == Color::kWhite ? " w " : " b ";
  text += castling.empty() ? "-" : castling;
  text += " " + (en_passant_ == kNoSquare ? "-" : name_of(en_passant_));
  return text + " " + std::to_string(quiet_plies_) + " " + std::to_string(number_);
}

}  // namespace data::chess
