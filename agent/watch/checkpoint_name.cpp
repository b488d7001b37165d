#include "agent/watch/checkpoint_name.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>

#include "base/numbers.h"
#include "base/torn_save.h"

namespace agent::watch {
namespace {

using By = NamedStep::By;
using base::NumberWord;
constexpr std::int64_t kLargestStep = 9'000'000'000'000'000;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0;
}

/// A run of letters and digits of a name.
struct Run {
  std::string_view text;
  std::size_t begin = 0;
};

std::vector<Run> runs_of(std::string_view name) {
  std::vector<Run> runs;
  for (std::size_t at = 0; at < name.size();) {
    auto end = at;
    while (end < name.size() && (is_digit(name[end]) || is_letter(name[end]))) ++end;
    if (end > at) runs.push_back({name.substr(at, end - at), at});
    at = std::max(end, at + 1);
  }
  return runs;
}

bool all_digits(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, is_digit);
}

/// "20261128".
bool is_date(std::string_view digits) {
  if (digits.size() != 8) return false;
  const auto year = *step_of_digits(digits.substr(0, 4)), month = *step_of_digits(digits.substr(4, 2)),
             day = *step_of_digits(digits.substr(6));
  return year >= 1990 && year < 2100 && month >= 1 && month <= 12 && day >= 1 && day <= 31;
}

/// True if the digits are one side of a decimal point: "0.80". Not those of "step.12.h5", whose other side is no digit.
bool is_decimal(std::string_view name, const Run& run) {
  const auto end = run.begin + run.text.size();
  const bool before = run.begin >= 2 && name[run.begin - 1] == '.' && is_digit(name[run.begin - 2]);
  const bool after = end + 1 < name.size() && name[end] == '.' && is_digit(name[end + 1]);
  return before || after;
}

/// The numbers of a name, each kind's last one.
using Numbers = std::map<By, std::int64_t>;

/// nullopt: the word's number counts for nothing.
std::optional<By> kind_of(NumberWord word) {
  switch (word) {
    case NumberWord::kStep:
      return By::kStep;
    case NumberWord::kCheckpoint:
      return By::kCheckpoint;
    case NumberWord::kModel:
      return By::kModel;
    case NumberWord::kEpoch:
      return By::kEpoch;
    case NumberWord::kOther:
      return By::kAlone;
    case NumberWord::kOf:
    case NumberWord::kPart:
      break;
  }
  return std::nullopt;
}

Numbers numbers_of(std::string_view name) {
  Numbers found;
  auto before = NumberWord::kOther;  // what the run before says of a number behind it
  bool after_date = false;
  const auto add = [&](std::string_view digits) {
    const auto number = step_of_digits(digits);
    const auto kind = kind_of(before);
    if (number && kind) found[*kind] = *number;
  };
  for (const auto& run : runs_of(name)) {
    const auto& text = run.text;
    if (all_digits(text)) {
      const bool date = is_date(text) && before == NumberWord::kOther;
      const bool time = after_date && text.size() == 6;
      const bool decimal = before != NumberWord::kStep && is_decimal(name, run);
      if (!date && !time && !decimal) add(text);
      before = NumberWord::kOther;
      after_date = date;
      continue;
    }
    const auto letters = static_cast<std::size_t>(std::ranges::find_if_not(text, is_letter) - text.begin());
    before = base::number_word(text.substr(0, letters));
    after_date = false;
    if (letters == text.size()) continue;
    // "step100": digits that are joined to a word count only where the word says what they are.
    const auto digits = text.substr(letters);
    if (before != NumberWord::kOther && all_digits(digits)) add(digits);
    before = NumberWord::kOther;
  }
  return found;
}

/// Without the numbers of "-00001-of-00003", where those count parts.
std::string without_part(std::string_view name) {
  const auto of = base::number_of(name);
  if (!of || of->is_part != base::NumberOf::IsPart::kYes) return std::string(name);
  return of->before + of->after;
}

}  // namespace

std::optional<std::int64_t> step_of_digits(std::string_view digits) {
  const auto step = base::whole_number<std::int64_t>(digits);
  return step && *step <= kLargestStep ? step : std::nullopt;
}

std::optional<NamedStep> step_in_name(std::string_view name) {
  const auto dot = name.rfind('.');
  const bool has_extension = dot != std::string_view::npos && std::ranges::any_of(name.substr(dot), is_letter);
  const auto found = numbers_of(without_part(has_extension ? name.substr(0, dot) : name));
  if (found.empty()) return std::nullopt;
  const auto& [by, step] = *found.begin();  // in the order of By
  return NamedStep{step, by};
}

bool is_draft_name(std::string_view name) {
  constexpr std::array<std::string_view, 5> kWords{"tmp", "temp", "partial", "incomplete", "lock"};
  for (std::size_t at = 0; at < name.size();) {
    std::size_t end = at;
    while (end < name.size() && is_letter(name[end])) ++end;
    if (std::ranges::find(kWords, name.substr(at, end - at)) != kWords.end()) return true;
    at = end + 1;
  }
  return false;
}

namespace {

/// How surely what was passed on the way to a file tells the step: a folder of an epoch may hold saves of steps.
enum class Sureness { kNone, kWeak, kStrong };

struct Place {
  Sureness sureness = Sureness::kNone;
  std::size_t end = 0;  // of the path of the folder that tells it
};

bool is_strong(By by) {
  return by == By::kStep || by == By::kCheckpoint;
}

void enter(std::string_view folder, std::size_t end, Place& place) {
  if (place.sureness == Sureness::kStrong) return;
  const auto named = step_in_name(folder);
  if (!named || (named->by == By::kAlone && !step_of_digits(folder))) return;
  if (is_strong(named->by)) {
    place = {Sureness::kStrong, end};
  } else if (place.sureness == Sureness::kNone) {
    place = {Sureness::kWeak, end};
  }
}

/// The folder of a path, with its slash; empty: the top.
std::string_view folder_of(std::string_view path) {
  return path.substr(0, path.rfind('/') + 1);
}

std::string_view name_in(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

Place place_of(std::string_view path) {
  Place place;
  for (std::size_t begin = 0;;) {
    const auto slash = path.find('/', begin);
    if (slash == std::string_view::npos) return place;
    enter(path.substr(begin, slash - begin), slash, place);
    begin = slash + 1;
  }
}

bool is_of_a_rank(std::string_view name) {
  constexpr std::array<std::string_view, 9> kParts{"rank",       "shard",    "rng_state", "random_states", "optimizer",
                                                   "scheduler_", "sampler_", "scaler_",   ".distcp"};
  if (std::ranges::none_of(name, [](unsigned char c) { return std::isdigit(c) != 0; })) return false;
  return std::ranges::any_of(kParts, [&](auto part) { return name.find(part) != std::string_view::npos; });
}

std::string label(const NamedStep& named) {
  return (named.by == By::kEpoch ? "epoch " : "step ") + std::to_string(named.step);
}

class Saves {
 public:
  explicit Saves(const std::vector<std::string>& files) {
    for (const auto& path : files) {
      const auto named = step_in_name(name_in(path));
      const bool has_step = named && is_strong(named->by);
      if (!has_step && is_of_a_rank(name_in(path))) of_ranks_.emplace(folder_of(path));
    }
  }

  SaveOfFile of(const std::string& path) const {
    const auto place = place_of(path);
    const auto folder = folder_of(path);
    const auto named = step_in_name(name_in(path));
    if (named && counts(*named, place, folder)) return {std::string(folder) + label(*named), true};
    if (place.sureness != Sureness::kNone) return {path.substr(0, place.end), true};
    if (!folder.empty()) return {path.substr(0, path.find('/') + 1), false};
    const auto of = base::number_of(path);
    const bool is_part = of && of->is_part == base::NumberOf::IsPart::kYes;
    return {is_part ? of->before + "#-of-" + of->count_text + of->after : path, false};
  }

 private:
  bool counts(const NamedStep& named, const Place& place, std::string_view folder) const {
    switch (place.sureness) {
      case Sureness::kStrong:
        return false;
      case Sureness::kWeak:
        return is_strong(named.by);
      case Sureness::kNone:
        break;
    }
    const bool by_word = is_strong(named.by) || named.by == By::kEpoch;
    return by_word || !of_ranks_.contains(folder);
  }

  std::set<std::string, std::less<>> of_ranks_;  // folders that hold files of ranks
};

}  // namespace

std::vector<SaveOfFile> saves_of(const std::vector<std::string>& files) {
  const Saves saves(files);
  std::vector<SaveOfFile> out;
  out.reserve(files.size());
  for (const auto& path : files) out.push_back(saves.of(path));
  return out;
}

}  // namespace agent::watch
