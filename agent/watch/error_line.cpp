#include "agent/watch/error_line.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "agent/protocol/files.h"
#include "agent/watch/log_lines.h"
#include "agent/watch/root_cause.h"

namespace agent::watch {
namespace {

using namespace log;

/// "0.31", and "nan": what follows the name of a quantity.
bool begins_with_number(std::string_view text) {
  const auto word = trimmed(text).substr(0, trimmed(text).find_first_of(" ,;"));
  return begins_with_digits(text) || word == "nan" || word == "-nan" || word == "inf" || word == "-inf";
}

enum class Level { kNone, kHarmless, kError };

/// The level that the word of a logger tells: "[info]", "WARNING:root:x", and of glog "W1123".
Level level_of(std::string_view word) {
  const bool glog = word.size() == 5 && std::ranges::all_of(word.substr(1), is_digit);
  if (glog) {
    if (word[0] == 'I' || word[0] == 'W') return Level::kHarmless;
    return word[0] == 'E' || word[0] == 'F' ? Level::kError : Level::kNone;
  }
  for (const std::string_view name : {"INFO", "DEBUG", "TRACE", "NOTICE", "WARNING", "WARN"}) {
    if (equal_in_any_case(word, name)) return Level::kHarmless;
  }
  for (const std::string_view name : {"ERROR", "CRITICAL", "FATAL"}) {
    if (word == name) return Level::kError;
  }
  return Level::kNone;
}

/// The level that a logger puts among the first words of its line: "2026-11-23 10:00:00,123 - root - ERROR - x".
/// "ERROR: x" is what tools print.
Level level_of_line(std::string_view line) {
  constexpr int kFirstWords = 12;
  constexpr std::string_view kBetween = " \t[](){}:|-,";
  for (int i = 0; i < kFirstWords; ++i) {
    const auto begin = line.find_first_not_of(kBetween);
    if (begin == std::string_view::npos) break;
    line.remove_prefix(begin);
    const auto word = line.substr(0, line.find_first_of(kBetween));
    const auto level = level_of(word);
    line.remove_prefix(word.size());
    // A lower-case word is a level only where it is set apart: "[info]", "info: x".
    const bool apart = line.starts_with(']') || line.starts_with(':') || line.starts_with('|');
    const bool shouted = std::ranges::none_of(word, [](unsigned char c) { return std::islower(c) != 0; });
    const bool tool = level == Level::kError && i == 0 && line.starts_with(": ");
    if (level != Level::kNone && (apart || shouted) && !tool) return level;
  }
  return Level::kNone;
}

/// The text after "train.py: " or "run.sh: line 3: "; the whole line where a program's name does not begin it.
std::string_view without_program(std::string_view line) {
  const auto colon = line.substr(0, line.find(' ')).size();
  if (colon == line.size() || colon < 2 || line[colon - 1] != ':') return line;
  const auto name = line.substr(0, colon - 1);
  if (equal_in_any_case(name, "error") || name == "fatal") return line;
  auto rest = trimmed(line.substr(colon));
  const auto number = rest.starts_with("line ") ? rest.substr(5) : rest;
  const auto digits = number.find_first_not_of("0123456789");
  if (digits != 0 && digits != std::string_view::npos && number.substr(digits).starts_with(": ")) {
    rest = trimmed(number.substr(digits + 1));
  }
  return rest;
}

/// True if a shell or a tool tells of an error: at the start of the line, or after its name.
bool tool_says_error(std::string_view line) {
  const auto said = without_program(line);
  for (const std::string_view start : {"error:", "fatal:", "fatal error:"}) {
    if (find_in_any_case(said, start) != 0) continue;
    const auto rest = said.substr(start.size());
    return (rest.empty() || rest.front() == ' ') && !begins_with_number(rest);
  }
  for (const std::string_view start : {"Killed", "Aborted", "Segmentation fault", "Bus error", "Illegal instruction"}) {
    if (said == start || said == std::string(start) + " (core dumped)") return true;
  }
  const bool named = said.size() != line.size();
  if (!named) return false;
  for (const std::string_view end : {"command not found", "no such file or directory", "permission denied",
                                     "unbound variable", ": not found", "is a directory", "not a directory"}) {
    if (line.size() >= end.size() && equal_in_any_case(line.substr(line.size() - end.size()), end)) {
      return true;
    }
  }
  // "run.sh: line 2:  4242 Killed                  python3 train.py"
  const auto pid = said.find_first_not_of("0123456789");
  return pid != 0 && pid != std::string_view::npos && trimmed(said.substr(pid)).starts_with("Killed ");
}

/// Words that are an error's more often than not.
bool may_say_error(std::string_view line) {
  for (const std::string_view part : {"segmentation fault", "core dumped", "out of memory", "oom-kill",
                                      "no such file or directory", "permission denied", "command not found"}) {
    if (contains_in_any_case(line, part)) return true;
  }
  const auto colon = line.find(':');
  const bool quantity = colon != std::string_view::npos && begins_with_number(line.substr(colon + 1));
  return (line.starts_with("Error ") && !quantity) || line.starts_with("cannot ");
}

/// True if a number stands in the line by itself: "step 40 loss 2.1", "7/100", "12%". Programs tell their progress so.
bool has_number(std::string_view line) {
  while (!line.empty()) {
    const auto word = line.substr(0, line.find_first_of(" \t=:,;()[]|"));
    const bool digit = std::ranges::any_of(word, is_digit);
    const bool letters = std::ranges::count_if(word, [](unsigned char c) { return std::isalpha(c) != 0; }) > 1;
    if (digit && !letters) return true;
    line.remove_prefix(std::min(line.size(), word.size() + 1));
  }
  return false;
}

/// Fit to be shown as the last thing that a program said before it failed: words, and nobody's frame of a traceback.
bool is_sentence(std::string_view line) {
  const bool indented = line.starts_with(' ') || line.starts_with('\t');
  const auto letters = std::ranges::count_if(line, [](unsigned char c) { return std::isalpha(c) != 0 || c >= 0x80; });
  return !indented && letters >= 3 && !has_number(line) && !line.starts_with("Traceback (most recent call last)");
}

/// muster-worker's own: "error: <words> (exit code 1)".
std::string without_frame(std::string_view line) {
  constexpr std::string_view kError = "error: ";
  if (line.size() > kError.size() && equal_in_any_case(line.substr(0, kError.size()), kError)) {
    line.remove_prefix(kError.size());
    const auto code = line.rfind(" (exit code ");
    if (code != std::string_view::npos && line.ends_with(')')) line = line.substr(0, code);
  }
  return std::string(line);
}

}  // namespace

std::string said_error(const log::Lines& lines) {
  std::string sentence;
  const auto end = lines.size() - std::min(lines.size(), kAtEnd);
  for (auto i = lines.size(); i-- > end;) {
    const auto line = trimmed(lines[i].text);
    const auto level = level_of_line(line);
    if (level == Level::kHarmless || contains_in_any_case(line, "warning") || contains(line, "Exception ignored in")) {
      continue;
    }
    const bool last = i + 1 == lines.size();
    const bool tool = tool_says_error(line);
    if (tool && last && level == Level::kNone) return without_frame(line);
    if (tool || level == Level::kError || may_say_error(line)) {
      return std::string(last ? kLastLine : kLogged) + without_frame(line);
    }
    if (last && is_sentence(lines[i].text)) sentence = std::string(kLastLine) + std::string(line);
  }
  return sentence;
}

namespace {

using log::Lines;

/// The lines of one rank, in the order of the log. Ranks that write into one log write between each other's lines.
struct Stream {
  Lines lines;
  std::vector<std::size_t> places;  // of the lines in the log
};

/// The error that the lines of one rank close with.
struct LastError {
  std::string words;
  std::size_t place = 0;   // of its first line in the log
  std::size_t behind = 0;  // lines of the rank that come after it
  bool of_child = false;
};

std::map<int, Stream> by_rank(const Lines& lines) {
  std::map<int, Stream> streams;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    auto& stream = streams[lines[i].rank];
    stream.lines.push_back(lines[i]);
    stream.places.push_back(i);
  }
  return streams;
}

/// A program's own error counts before a launcher's words. Of several the last one counts: a program may print an error
/// and go on. But an error that says that somebody else has gone gives way to another one shortly before it: those are
/// of two ranks, or one rank says both.
std::optional<LastError> last_error(const Stream& stream) {
  std::optional<LastError> own, of_child;
  for (std::size_t i = 0; i < stream.lines.size(); ++i) {
    const auto found = error_at(stream.lines, i);
    if (!found) continue;
    const bool follows = own && i <= stream.lines.size() - own->behind + kAtEnd;
    const bool gives_way = !found->of_child && follows && protocol::is_of_a_survivor(found->words) &&
                           !protocol::is_of_a_survivor(own->words);
    const auto behind = stream.lines.size() - found->last - 1;
    if (gives_way) {
      own->behind = behind;
    } else {
      (found->of_child ? of_child : own) = LastError{found->words, stream.places[i], behind, found->of_child};
    }
    i = found->last;
  }
  return own ? own : of_child;
}

std::map<int, LastError> last_errors(const Lines& lines) {
  std::map<int, LastError> errors;
  for (const auto& [rank, stream] : by_rank(lines)) {
    if (auto error = last_error(stream)) errors.emplace(rank, std::move(*error));
  }
  return errors;
}

/// The first of the errors of several ranks that no other rank's end explains.
const LastError* first_cause(const std::map<int, LastError>& errors) {
  const LastError* best = nullptr;
  // Worse: of a launcher, followed by much else, of a survivor; then a later place.
  const auto rate = [](const LastError& error) {
    return std::tuple(error.of_child, error.behind > kAtEnd, protocol::is_of_a_survivor(error.words), error.place);
  };
  for (const auto& [rank, error] : errors) {
    if (best == nullptr || rate(error) < rate(*best)) best = &error;
  }
  return best;
}

/// The worker's own words in the log, or in its error file; empty: none, or that another one has gone.
std::string own_words(const WorkerFailure& worker, const std::map<int, LastError>& errors) {
  for (const int rank : {worker.rank, worker.local_rank}) {
    const auto own = errors.find(rank);
    if (rank != log::kNoRank && own != errors.end() && !protocol::is_of_a_survivor(own->second.words)) {
      return own->second.words;
    }
  }
  return protocol::is_of_a_survivor(worker.error) ? std::string() : worker.error;
}

/// The error that the launcher's word on the first failure leads to; empty: it says no more than the lines do.
std::string words_of(const RootCause& cause, const std::map<int, LastError>& errors) {
  if (auto words = own_words(cause, errors); !words.empty()) return words;
  if (cause.was_killed) return cause.end;  // what others said follows from it
  const auto* const first = first_cause(errors);
  if (first != nullptr && !first->of_child && !protocol::is_of_a_survivor(first->words)) return {};
  // torchelastic compares seconds, so a survivor may have been called the first.
  for (const auto& other : cause.others) {
    if (other.had_signal) return other.end;
    if (auto words = own_words(other, errors); !words.empty()) return words;
  }
  return cause.error.empty() ? cause.end : cause.error;
}

}  // namespace

std::string first_line(std::string_view text) {
  log::Lines lines;
  while (!text.empty() && lines.size() < 2) {
    const auto end = text.find('\n');
    const auto line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!log::trimmed(line).empty()) lines.push_back({std::string(line)});
  }
  return lines.empty() ? std::string() : log::with_next(lines, 0);
}

std::string error_line(std::string_view text) {
  const auto lines = log::last_lines(text, kNearEnd);
  const auto errors = last_errors(lines);
  if (const auto cause = root_cause(lines)) {
    if (auto words = words_of(*cause, errors); !words.empty()) return words;
  }
  const auto* const first = first_cause(errors);
  return first == nullptr ? said_error(lines) : first->words;
}

std::string closing_error(std::string_view text) {
  const auto lines = log::last_lines(text, kNearEnd);
  if (const auto cause = root_cause(lines)) return words_of(*cause, last_errors(lines));
  const auto errors = last_errors(lines);
  const auto* const first = first_cause(errors);
  return first == nullptr || first->behind > kAfterError ? std::string() : first->words;
}

}  // namespace agent::watch
