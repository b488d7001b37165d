#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace data::chess {

/// A square by number: 0 is a1, 7 is h1, 56 is a8, 63 is h8.
using Square = std::int8_t;
inline constexpr Square kNoSquare = -1;

constexpr int file_of(Square square) {
  return square & 7;
}
constexpr int rank_of(Square square) {
  return square >> 3;
}

/// The square so many files to the right and ranks up, as White sees them. kNoSquare if it is off the board.
constexpr Square step(Square from, int files, int ranks) {
  const int file = file_of(from) + files;
  const int rank = rank_of(from) + ranks;
  return file >= 0 && file < 8 && rank >= 0 && rank < 8 ? static_cast<Square>(rank * 8 + file) : kNoSquare;
}

/// "e4" of square 28.
std::string name_of(Square square);

/// Square 28 of "e4". kNoSquare for anything else.
Square square_of(std::string_view name);

enum class Color : std::uint8_t { kWhite, kBlack };

constexpr Color other(Color color) {
  return color == Color::kWhite ? Color::kBlack : Color::kWhite;
}

/// One rank towards the opponent: 1 for White, -1 for Black.
constexpr int forward(Color color) {
  return color == Color::kWhite ? 1 : -1;
}

enum class Kind : std::uint8_t { kNone, kPawn, kKnight, kBishop, kRook, kQueen, kKing };

/// The piece that stands on a square. Of an empty square the kind is kNone and the color kWhite.
struct Piece {
  Kind kind = Kind::kNone;
  Color color = Color::kWhite;

  bool operator==(const Piece&) const = default;
};

/// A move of one piece. Castling is the king's move of two files. `promotion` is kNone but for a pawn on the last rank.
struct Move {
  Square from = kNoSquare;
  Square to = kNoSquare;
  Kind promotion = Kind::kNone;

  bool operator==(const Move&) const = default;
};

enum class Side : std::uint8_t { kKing, kQueen };

/// A position of chess: pieces, the color to move, castling rights, en passant square and the two counters of a FEN.
///
/// A board is a value and never changes. Each color has exactly one king, and the color that is not to move is not in
/// check. The en passant square is kept only where a legal capture exists, so that positions that are the same in the
/// sense of FIDE's article 9.2 compare as equal.
class Board {
 public:
  /// The position before the first move of a game.
  static Board start();

  /// Reads Forsyth-Edwards notation, all six fields separated by single spaces. Returns nullopt for a text that is not
  /// such a position, and writes into `why` the field, the value and the remedy.
  static std::optional<Board> of_fen(std::string_view text, std::string* why = nullptr);

  /// The position in Forsyth-Edwards notation. of_fen() reads it back as an equal board while both counters are at most
  /// 9999.
  std::string fen() const;

  Piece at(Square square) const { return pieces_[static_cast<std::uint8_t>(square)]; }
  Color turn() const { return turn_; }
  bool may_castle(Color color, Side side) const { return (castling_ & right(color, side)) != 0; }

  /// The square behind a pawn that has just moved two ranks and can be captured there. kNoSquare if there is none.
  Square en_passant() const { return en_passant_; }

  /// Plies since the last capture or move of a pawn: the halfmove clock.
  int quiet_plies() const { return quiet_plies_; }

  /// The number of the move, 1 at the start. It grows after each move of Black.
  int number() const { return number_; }

  /// True if a piece of `by` attacks this square.
  bool attacked(Square square, Color by) const;

  /// True if the king of the color to move is attacked.
  bool in_check() const { return attacked(king(turn_), other(turn_)); }

  /// All legal moves, in an order that depends on the position alone. Empty after checkmate and stalemate.
  std::vector<Move> legal_moves() const;

  /// The position after a move of legal_moves(). Other moves give a board without meaning.
  Board after(Move move) const;

  /// True if pieces, color to move, castling rights and en passant square are equal. The counters may differ.
  bool same_position(const Board& that) const;

  bool operator==(const Board&) const = default;

 private:
  Board() = default;  // without kings: for of_fen() alone

  static constexpr std::uint8_t right(Color color, Side side) {
    return static_cast<std::uint8_t>(1 << (2 * static_cast<int>(color) + static_cast<int>(side)));
  }

  Square king(Color color) const { return kings_[static_cast<std::size_t>(color)]; }
  void put(Square square, Piece piece);

  /// Only the pieces after this move of the color to move, without its effect on turn, rights and counters.
  Board placed(Move move) const;

  /// True if the king of the color to move would be safe after this move.
  bool is_safe(Move move) const;

  /// True if a pawn of the color to move may capture on en_passant_.
  bool has_en_passant_capture() const;

  /// Fields of a FEN. Each returns an empty text or says what is wrong.
  std::string read_pieces(std::string_view field);
  std::string read_castling(std::string_view field);
  std::string read_en_passant(std::string_view field);

  std::array<Piece, 64> pieces_{};
  std::array<Square, 2> kings_{kNoSquare, kNoSquare};
  Color turn_ = Color::kWhite;
  std::uint8_t castling_ = 0;  // bits of right()
  Square en_passant_ = kNoSquare;
  int quiet_plies_ = 0;
  int number_ = 1;
};

/// The steps of pieces, as files and ranks. The first four directions are a rook's, the others a bishop's.
struct Direction {
  int files;
  int ranks;
};
inline constexpr std::array<Direction, 8> kDirections{
    {{1, 0}, {-1, 0}, {0, 1}, {0, -1}, {1, 1}, {1, -1}, {-1, 1}, {-1, -1}}};
inline constexpr std::array<Direction, 8> kKnightSteps{
    {{1, 2}, {2, 1}, {2, -1}, {1, -2}, {-1, -2}, {-2, -1}, {-2, 1}, {-1, 2}}};

/// 'N' of a knight, 'P' of a pawn.
constexpr char letter_of(Kind kind) {
  return " PNBRQK"[static_cast<std::size_t>(kind)];
}

/// The kind that this capital letter stands for. kNone for any other character.
constexpr Kind kind_of(char letter) {
  const auto at = std::string_view("PNBRQK").find(letter);
  return at == std::string_view::npos ? Kind::kNone : static_cast<Kind>(at + 1);
}

constexpr std::string_view name_of(Color color) {
  return color == Color::kWhite ? "White" : "Black";
}

/// A text for a message: in quotes, at most 40 bytes of it, with "?" for each byte that is not printable ASCII.
inline std::string quoted(std::string_view text) {
  constexpr std::size_t kMostBytes = 40;
  std::string shown = "\"";
  for (const char c : text.substr(0, kMostBytes)) shown += c >= ' ' && c <= '~' ? c : '?';
  return shown + (text.size() > kMostBytes ? "...\"" : "\"");
}

/// For a reader's result: writes what is wrong where the caller wants it, and is an absent value.
inline std::nullopt_t refuse(std::string* why, std::string message) {
  if (why) *why = std::move(message);
  return std::nullopt;
}

}  // namespace data::chess
