#include "data/tokenizers/spm_merges.h"

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <unordered_map>

namespace data::tokenizers {
namespace {

using Ids = std::unordered_map<std::string_view, std::size_t>;

struct Merge {
  std::string_view left, right;
  float score = 0;  // of the whole
  std::size_t left_characters = 0, right_characters = 0;
  std::size_t left_id = 0, right_id = 0;
};

bool takes_part(const SpmPiece& piece, SpmStyle style) {
  return style != SpmStyle::kPlain || piece.type == SpmType::kNormal || piece.type == SpmType::kUserDefined;
}

bool begins_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
}

/// The merges that give one piece, in the order of the ids of their parts.
std::vector<Merge> cuts_of(std::string_view piece, float score, const Ids& ids) {
  const auto characters = static_cast<std::size_t>(std::count_if(piece.begin(), piece.end(), begins_character));
  std::vector<Merge> cuts;
  std::size_t before = 1;  // characters before the place
  for (std::size_t place = 1; place < piece.size(); ++place) {
    if (!begins_character(piece[place])) continue;
    const auto left = ids.find(piece.substr(0, place));
    const auto right = left == ids.end() ? left : ids.find(piece.substr(place));
    if (right != ids.end()) {
      cuts.push_back({left->first, right->first, score, before, characters - before, left->second, right->second});
    }
    ++before;
  }
  std::sort(cuts.begin(), cuts.end(), [](const Merge& a, const Merge& b) {
    return std::tie(a.left_id, a.right_id) < std::tie(b.left_id, b.right_id);
  });
  return cuts;
}

}  // namespace

std::vector<std::pair<std::string_view, std::string_view>> merges_of(const SpmModel& model, SpmStyle style) {
  Ids ids;
  ids.reserve(model.pieces.size());
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    if (takes_part(model.pieces[id], style)) ids.emplace(model.pieces[id].text, id);
  }
  std::vector<Merge> merges;
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    const auto& piece = model.pieces[id];
    if (!takes_part(piece, style)) continue;
    const auto cuts = cuts_of(piece.text, style == SpmStyle::kLlama && id < 3 ? 0 : piece.score, ids);
    merges.insert(merges.end(), cuts.begin(), cuts.end());
  }
  std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    return std::tie(a.score, a.left_characters, a.right_characters) >
           std::tie(b.score, b.left_characters, b.right_characters);
  });
  std::vector<std::pair<std::string_view, std::string_view>> result;
  result.reserve(merges.size());
  for (const auto& merge : merges) result.emplace_back(merge.left, merge.right);
  return result;
}

}  // namespace data::tokenizers
