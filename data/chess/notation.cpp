#include "data/chess/notation.h"

#include <algorithm>
#include <cstdlib>

namespace data::chess {
namespace {

constexpr std::size_t kMostMovesInMessage = 6;

/// The text that tells this move from other legal moves of such pieces to its target: nothing, a file, a rank, or both.
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
  // A move that people write with zeros is castling.
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

namespace {

constexpr std::string_view kSpaces = " \n\r";
constexpr std::string_view kDigits = "0123456789";

/// One word of a movetext.
struct Word {
  std::string_view number;  // "12." or "12..." at its front, else empty
  std::string_view rest;    // a move or a result; empty after a number that stands alone
};

bool is_result(std::string_view word) {
  return word == "1-0" || word == "0-1" || word == "1/2-1/2" || word == "*";
}

/// Takes the next word from the front of `text`. nullopt at its end.
std::optional<Word> take_word(std::string_view& text) {
  const auto begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return std::nullopt;
  text.remove_prefix(begin);
  const auto word = text.substr(0, text.find_first_of(kSpaces));
  text.remove_prefix(word.size());
  const auto dots = word.find_first_not_of(kDigits);
  if (dots == 0 || dots == std::string_view::npos || word[dots] != '.') return Word{{}, word};
  const auto end = std::min(word.find_first_not_of('.', dots), word.size());
  return Word{word.substr(0, end), word.substr(end)};
}

/// "12." before a move of White, "12..." before one of Black.
std::string number_before_move(const Board& board) {
  return std::to_string(board.number()) + (board.turn() == Color::kWhite ? "." : "...");
}

std::string at_ply(std::size_t ply, std::string_view message) {
  return "ply " + std::to_string(ply + 1) + ": " + std::string(message);
}

/// The name of this word of PGN if it is one that this reader leaves to others.
std::string_view unread_part(std::string_view word) {
  switch (word.front()) {
    case '{':
    case ';':
      return "a comment";
    case '(':
      return "a variation";
    case '[':
      return "a tag";
    case '$':
      return "an annotation";
    default:
      return word.back() == '!' || word.back() == '?' ? "an annotation" : "";
  }
}

/// The problem with the number before a move, or nothing.
std::string check_number(const Board& board, std::string_view number) {
  const auto expected = number_before_move(board);
  if (number.empty() || number == expected) return {};
  return "the number " + quoted(number) + " stands where move " + expected + " comes; write " + expected +
         " or leave numbers out";
}

}  // namespace

std::string movetext(const Board& start, std::span<const Move> moves, Notation notation) {
  std::string text;
  auto board = start;
  for (std::size_t ply = 0; ply < moves.size(); ++ply) {
    if (ply > 0) text += ' ';
    const bool has_number = ply == 0 || board.turn() == Color::kWhite;
    if (notation == Notation::kSan && has_number) text += number_before_move(board) + " ";
    text += print_move(board, moves[ply], notation);
    board = board.after(moves[ply]);
  }
  return text;
}

std::optional<Line> parse_movetext(const Board& start, std::string_view text, Notation notation, std::string* why) {
  Line line{{}, start, {}};
  while (const auto word = take_word(text)) {
    const auto ply = line.moves.size();
    if (!line.result.empty()) {
      return refuse(why, at_ply(ply, quoted(word->number.empty() ? word->rest : word->number) + " follows the result " +
                                         line.result + "; give each game a text of its own"));
    }
    if (auto problem = check_number(line.last, word->number); !problem.empty())
      return refuse(why, at_ply(ply, problem));
    if (word->rest.empty()) continue;
    if (word->number.empty() && is_result(word->rest)) {
      line.result = word->rest;
      continue;
    }
    if (const auto part = unread_part(word->rest); !part.empty()) {
      return refuse(why, at_ply(ply, quoted(word->rest) + " is " + std::string(part) +
                                         "; keep only moves, their numbers and the result"));
    }
    std::string problem;
    const auto move = parse_move(line.last, word->rest, notation, &problem);
    if (!move) return refuse(why, at_ply(ply, problem));
    line.moves.push_back(*move);
    line.last = line.last.after(*move);
  }
  return line;
}

std::optional<std::string_view> text_before(std::string_view movetext, std::size_t ply) {
  auto rest = movetext;
  std::size_t moves = 0;
  while (const auto word = take_word(rest)) {
    if (word->rest.empty() || is_result(word->rest)) continue;
    if (moves++ == ply) return movetext.substr(0, static_cast<std::size_t>(word->rest.data() - movetext.data()));
  }
  return std::nullopt;
}

}  // namespace data::chess
