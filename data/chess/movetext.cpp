#include "data/chess/movetext.h"

#include <algorithm>

#include "data/chess/letters.h"

namespace data::chess {
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

/// What this word of PGN is called if it is one that this reader leaves to others.
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

/// What is wrong with the number before a move, or nothing.
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
