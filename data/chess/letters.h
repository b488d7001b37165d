#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "data/chess/board.h"

namespace data::chess {

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
