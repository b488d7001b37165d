#include "data/chess/notation.h"

#include <cstdlib>

#include "data/chess/letters.h"

namespace data::chess {
namespace {

constexpr std::size_t kMostMovesInMessage = 6;

/// What tells this move from the other legal moves of such pieces to its target: nothing, a file, a rank, or both.
std::string origin_of(const Board& board, Move move, const std::vector<Move>& legal) {
  bool is_alone = true, is_alone_on_file = true, is_alone_on_rank = true;
  for (const auto rival : legal) {
    if (rival.to != move.to || rival.from == move.from || board.at(rival.from) != board.at(move.from)) continue;
    is_alone = false;
    if (file_of(rival.from) == file_of(move.from)) is_alone_on_file = false;
    if (rank_of(rival.from) == rank_of(move.from)) is_alone_on_rank = false;
  }
  const auto origin = name_of(move.from);
  if (is_alone) return {};
  if (is_alone_on_file) return origin.substr(0, 1);
  if (is_alone_on_rank) return origin.substr(1);
  return origin;
}

/// The move without its mark of check.
std::string bare_san(const Board& board, Move move, const std::vector<Move>& legal) {
  const auto kind = board.at(move.from).kind;
  if (kind == Kind::kKing && std::abs(move.to - move.from) == 2) return file_of(move.to) == 6 ? "O-O" : "O-O-O";
  const bool changes_file = file_of(move.from) != file_of(move.to);
  const bool captures = board.at(move.to).kind != Kind::kNone || (kind == Kind::kPawn && changes_file);
  std::string text;
  if (kind == Kind::kPawn) {
    if (captures) text = name_of(move.from).substr(0, 1);
  } else {
    text = letter_of(kind) + origin_of(board, move, legal);
  }
  if (captures) text += 'x';
  text += name_of(move.to);
  if (move.promotion != Kind::kNone) text += std::string("=") + letter_of(move.promotion);
  return text;
}

/// "+", "#" or nothing.
std::string_view mark_of(const Board& board, Move move) {
  const auto next = board.after(move);
  if (!next.in_check()) return "";
  return next.legal_moves().empty() ? "#" : "+";
}

/// The last square that a text names: "d2" of "Nbxd2+". Empty if it names none.
std::string_view target_in(std::string_view text) {
  for (auto at = text.size(); at >= 2; --at) {
    const auto name = text.substr(at - 2, 2);
    if (square_of(name) != kNoSquare) return name;
  }
  return {};
}

/// Why a text is no legal move, with the legal moves to the square that it names, or else with the first ones.
std::string not_legal(const Board& board, std::string_view text, const std::vector<Move>& legal, Notation notation) {
  auto message = quoted(text) + " is not a legal move of " + std::string(name_of(board.turn())) + " in " +
                 (notation == Notation::kSan ? "algebraic notation" : "UCI notation") + " at FEN \"" + board.fen() +
                 "\"; ";
  if (legal.empty()) return message + "the game has ended there: remove this move";
  // What people write with zeros is castling.
  const bool castles = notation == Notation::kSan && text.substr(0, 3) == "0-0";
  const auto target = target_in(text.substr(0, 16));
  const auto is_near = [&](Move move) {
    return castles ? bare_san(board, move, legal)[0] == 'O' : !target.empty() && name_of(move.to) == target;
  };
  bool has_near = false;
  for (const auto move : legal) has_near = has_near || is_near(move);
  std::string list;
  std::size_t listed = 0, all = 0;
  for (const auto move : legal) {
    if (has_near && !is_near(move)) continue;
    if (++all > kMostMovesInMessage) continue;
    ++listed;
    list += (list.empty() ? "" : ", ") + print_move(board, move, notation);
  }
  message += has_near && !castles ? "legal moves to " + std::string(target) + " are " : "legal moves are ";
  return message + list + (all > listed ? " and " + std::to_string(all - listed) + " more" : "");
}

}  // namespace

std::string san(const Board& board, Move move) {
  return bare_san(board, move, board.legal_moves()).append(mark_of(board, move));
}

std::string uci(Move move) {
  auto text = name_of(move.from) + name_of(move.to);
  if (move.promotion != Kind::kNone) text += static_cast<char>(letter_of(move.promotion) - 'A' + 'a');
  return text;
}

std::optional<Move> of_san(const Board& board, std::string_view text, std::string* why) {
  const auto legal = board.legal_moves();
  const char last = text.empty() ? ' ' : text.back();
  const bool is_marked = last == '+' || last == '#';
  const auto bare = is_marked ? text.substr(0, text.size() - 1) : text;
  for (const auto move : legal) {
    const auto expected = bare_san(board, move, legal);
    if (expected != bare) continue;
    const auto mark = mark_of(board, move);
    if (!is_marked || mark == text.substr(bare.size())) return move;
    const auto effect = mark.empty()  ? "does not give check"
                        : mark == "#" ? "gives checkmate"
                                      : "gives check, not checkmate";
    return refuse(
        why, quoted(text) + " " + effect + " at FEN \"" + board.fen() + "\"; write " + expected + std::string(mark));
  }
  return refuse(why, not_legal(board, text, legal, Notation::kSan));
}

std::optional<Move> of_uci(const Board& board, std::string_view text, std::string* why) {
  const auto legal = board.legal_moves();
  for (const auto move : legal) {
    if (uci(move) == text) return move;
  }
  return refuse(why, not_legal(board, text, legal, Notation::kUci));
}

std::string print_move(const Board& board, Move move, Notation notation) {
  return notation == Notation::kSan ? san(board, move) : uci(move);
}

std::optional<Move> parse_move(const Board& board, std::string_view text, Notation notation, std::string* why) {
  return notation == Notation::kSan ? of_san(board, text, why) : of_uci(board, text, why);
}

}  // namespace data::chess
