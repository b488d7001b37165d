#include "worker/metrics/legal_moves.h"

#include <algorithm>
#include <optional>

#include "data/chess/board.h"

namespace worker {
namespace {

constexpr std::string_view kSpaces = " \n\r";  // of a movetext

/// Takes the next word from the front of `text`. Empty at its end.
std::string_view take_word(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
  const auto word = text.substr(0, text.find_first_of(kSpaces));
  text.remove_prefix(word.size());
  return word;
}

/// The position after the next move of the reply. nullopt if the reply has no legal move there.
std::optional<data::chess::Board> play_next(const data::chess::Board& board, std::string_view& reply,
                                            data::chess::Notation notation) {
  while (true) {
    const auto word = take_word(reply);
    if (word.empty()) return std::nullopt;
    const auto line = data::chess::parse_movetext(board, word, notation);
    if (!line || !line->result.empty()) return std::nullopt;
    if (!line->moves.empty()) return line->last;  // else the word is the number of the move
  }
}

}  // namespace

LegalShare& LegalShare::operator+=(const LegalShare& that) {
  legal += that.legal;
  asked += that.asked;
  return *this;
}

LegalShare count_legal_moves(std::string_view prompt, std::string_view reply, data::chess::Notation notation,
                             std::int64_t moves) {
  const auto line = data::chess::parse_movetext(data::chess::Board::start(), prompt, notation);
  if (!line || !line->result.empty()) return {};
  LegalShare share;
  std::optional<data::chess::Board> board = line->last;
  while (share.asked < moves && !(board && board->legal_moves().empty())) {
    ++share.asked;
    if (board) board = play_next(*board, reply, notation);
    if (board) ++share.legal;
  }
  return share;
}

}  // namespace worker
