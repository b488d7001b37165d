#include "base/save_name.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

namespace base {
namespace {

constexpr std::array<std::string_view, 11> kStepWords{
    "step", "steps", "iter", "iters", "iteration", "iterations", "update", "updates", "ba", "globalstep", "gs"};
constexpr std::array<std::string_view, 6> kCheckpointWords{"checkpoint", "checkpoints", "ckpt",
                                                           "ckpts",      "chkpt",       "snapshot"};
constexpr std::array<std::string_view, 5> kModelWords{"model", "weights", "weight", "state", "save"};
constexpr std::array<std::string_view, 3> kEpochWords{"epoch", "epochs", "ep"};
constexpr std::array<std::string_view, 19> kPartWords{"rank", "ranks",  "shard", "part", "split",  "chunk", "piece",
                                                      "data", "mp",     "tp",    "pp",   "dp",     "node",  "worker",
                                                      "gpu",  "device", "host",  "proc", "process"};

template <std::size_t N>
bool is_one(const std::array<std::string_view, N>& words, const std::string& word) {
  return std::ranges::find(words, word) != words.end();
}

bool is_number_char(char c) {
  return c >= '0' && c <= '9';
}

bool is_word_char(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0;
}

/// The digits that end at `end`.
std::string_view digits_before(std::string_view text, std::size_t end) {
  auto begin = end;
  while (begin > 0 && is_number_char(text[begin - 1])) --begin;
  return text.substr(begin, end - begin);
}

std::string_view digits_from(std::string_view text, std::size_t begin) {
  auto end = begin;
  while (end < text.size() && is_number_char(text[end])) ++end;
  return text.substr(begin, end - begin);
}

std::optional<std::int64_t> value_of(std::string_view digits) {
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || stop != digits.data() + digits.size() || digits.empty()) return std::nullopt;
  return value;
}

/// The word that `text` ends with, without "-", "_", "=" and "." behind it.
std::string_view last_word(std::string_view text) {
  while (!text.empty() && std::string_view("-_=. ").find(text.back()) != std::string_view::npos) text.remove_suffix(1);
  auto begin = text.size();
  while (begin > 0 && is_word_char(text[begin - 1])) --begin;
  return text.substr(begin);
}

NumberOf::IsPart judge(const NumberOf& of, std::string_view digits) {
  using enum NumberOf::IsPart;
  if (of.number > of.count || of.count < 1) return kNo;
  switch (number_word(last_word(of.before))) {
    case NumberWord::kStep:
    case NumberWord::kEpoch:
      return kNo;
    case NumberWord::kPart:
      return kYes;
    case NumberWord::kCheckpoint:
      return kIfListed;
    case NumberWord::kModel:
    case NumberWord::kOf:
    case NumberWord::kOther:
      break;
  }
  const bool padded = of.count_text.front() == '0' && of.count_text.size() == digits.size();
  return padded && of.count < kMostParts ? kYes : kIfListed;
}

}  // namespace

NumberWord number_word(std::string_view text) {
  std::string word(text);
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (is_one(kStepWords, word)) return NumberWord::kStep;
  if (is_one(kCheckpointWords, word)) return NumberWord::kCheckpoint;
  if (is_one(kModelWords, word)) return NumberWord::kModel;
  if (is_one(kEpochWords, word)) return NumberWord::kEpoch;
  if (is_one(kPartWords, word)) return NumberWord::kPart;
  return word == "of" ? NumberWord::kOf : NumberWord::kOther;
}

std::optional<NumberOf> number_of(std::string_view name) {
  for (auto of = name.rfind("of"); of != std::string_view::npos && of > 0; of = name.rfind("of", of - 1)) {
    const auto is_gap = [&](std::size_t at) { return at < name.size() && (name[at] == '-' || name[at] == '_'); };
    if (of < 2 || !is_gap(of - 1) || !is_gap(of + 2)) continue;
    const auto number = digits_before(name, of - 1), count = digits_from(name, of + 3);
    const auto number_value = value_of(number), count_value = value_of(count);
    if (!number_value || !count_value) continue;
    NumberOf found;
    found.before = name.substr(0, of - 1 - number.size());
    found.after = name.substr(of + 3 + count.size());
    found.number = *number_value;
    found.count = *count_value;
    found.count_text = count;
    found.is_part = judge(found, number);
    return found;
  }
  return std::nullopt;
}

}  // namespace base
