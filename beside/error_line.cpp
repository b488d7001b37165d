#include "beside/error_line.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <vector>

namespace beside {
namespace {

using Lines = std::vector<std::string>;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '<' || c == '>' || c == '$';
}
bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}
std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

/// Without what colours and moves the cursor: CSI and OSC sequences, and other control characters.
std::string plain(std::string_view line) {
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const auto c = static_cast<unsigned char>(line[i]);
    if (c != 0x1B) {
      if (c == '\t' || (c >= 0x20 && c != 0x7F)) out += line[i];
      continue;
    }
    if (++i >= line.size()) break;
    if (line[i] == '[') {
      while (++i < line.size() && (line[i] < 0x40 || line[i] > 0x7E)) {
      }
    } else if (line[i] == ']') {
      while (++i < line.size() && line[i] != '\a' && !(line[i] == '\\' && line[i - 1] == 0x1B)) {
      }
    }
  }
  return out;
}

/// What a launcher or a logger puts before each line of a rank: "[rank0]: ", "[default3]:", "[rank 1] ", "7: ".
std::size_t prefix_size(std::string_view line) {
  std::size_t i = 0;
  const bool bracket = line.starts_with('[');
  if (bracket) {
    for (const std::string_view word : {"[rank", "[Rank", "[default", "["}) {
      if (line.starts_with(word)) {
        i = word.size();
        break;
      }
    }
    if (i < line.size() && line[i] == ' ') ++i;
  }
  const auto digits = i;
  while (i < line.size() && is_digit(line[i])) ++i;
  if (i == digits || i - digits > 5) return 0;
  if (bracket) {
    if (i >= line.size() || line[i] != ']') return 0;
    ++i;
    if (i < line.size() && line[i] == ':') ++i;
  } else {
    if (i >= line.size() || line[i] != ':') return 0;
    ++i;
  }
  const bool spaced = i < line.size() && line[i] == ' ';
  if (!bracket && !spaced && i < line.size()) return 0;
  return i + (spaced ? 1 : 0);
}

/// Python draws exception groups with "|" and "+" on the left, and their members further to the right: those are left
/// out, the group has a line of its own.
std::string_view without_drawing(std::string_view line) {
  constexpr std::size_t kMembers = 4;
  const auto first = line.find_first_not_of(' ');
  if (first == std::string_view::npos || (line[first] != '|' && line[first] != '+')) return line;
  if (first >= kMembers) return {};
  auto rest = line.substr(first + 1);
  if (line[first] == '+' && !rest.starts_with(" Exception Group Traceback")) return {};
  if (rest.starts_with(' ')) rest.remove_prefix(1);
  return rest;
}

/// The last lines, oldest first; "\r" ends one, too, as progress bars use it.
Lines last_lines(std::string_view log) {
  Lines lines;
  while (!log.empty() && lines.size() < kNearEnd) {
    while (!log.empty() && (log.back() == '\n' || log.back() == '\r')) log.remove_suffix(1);
    const auto end = log.find_last_of("\n\r");
    const auto raw = end == std::string_view::npos ? log : log.substr(end + 1);
    log.remove_suffix(raw.size());
    auto line = plain(raw);
    line.erase(0, prefix_size(line));
    if (const auto bare = without_drawing(line); !trimmed(bare).empty()) lines.emplace_back(bare);
  }
  std::ranges::reverse(lines);
  return lines;
}

std::string with_next(const Lines& lines, std::size_t i) {
  std::string line(trimmed(lines[i]));
  if (line.ends_with(':') && i + 1 < lines.size()) line += " " + std::string(trimmed(lines[i + 1]));
  return line;
}

/// `File "/a/train.py", line 12` becomes "train.py, line 12".
std::string place_of(std::string_view frame) {
  constexpr std::string_view kStart = "File \"";
  frame = trimmed(frame);
  if (!frame.starts_with(kStart)) return {};
  frame.remove_prefix(kStart.size());
  const auto quote = frame.find('"');
  constexpr std::string_view kLine = "\", line ";
  if (quote == std::string_view::npos || !frame.substr(quote).starts_with(kLine)) return {};
  auto number = frame.substr(quote + kLine.size());
  number = number.substr(0, static_cast<std::size_t>(std::ranges::find_if_not(number, is_digit) - number.begin()));
  const auto path = frame.substr(0, quote);
  return std::string(path.substr(path.rfind('/') + 1)) + ", line " + std::string(number);
}

/// Whether the line is "Name: ..." or "Name" alone.
bool begins_with_name(std::string_view line) {
  const auto end = static_cast<std::size_t>(std::ranges::find_if_not(line, is_name) - line.begin());
  if (end == 0 || is_digit(line.front())) return false;
  return end == line.size() || line[end] == ':';
}

struct Found {
  std::string words;
  std::size_t last = 0;   // the line that it ends with
  bool of_child = false;  // what a launcher says of a program that it started
};

bool is_of_child(std::string_view exception) {
  return contains(exception.substr(0, exception.find(' ')), "ChildFailedError") ||
         exception.starts_with("subprocess.CalledProcessError") || exception.starts_with("CalledProcessError");
}

/// A Python traceback that begins at line i.
std::optional<Found> traceback_at(const Lines& lines, std::size_t i) {
  const auto head = trimmed(lines[i]);
  if (!head.starts_with("Traceback (most recent call last)") &&
      !head.starts_with("Exception Group Traceback (most recent call last)")) {
    return std::nullopt;
  }
  const auto indent = lines[i].find_first_not_of(' ');
  std::string place;
  for (++i; i < lines.size(); ++i) {
    const auto own = lines[i].find_first_not_of(' ');
    if (own == std::string::npos) continue;
    if (own > indent) {
      if (auto frame = place_of(lines[i]); !frame.empty()) place = std::move(frame);
      continue;
    }
    const auto line = trimmed(lines[i]);
    if (!begins_with_name(line)) return std::nullopt;
    auto words = with_next(lines, i);
    const bool bare = !contains(line, ": ");
    if (bare && words == line && !place.empty()) words += " (" + place + ")";
    return Found{words, i, is_of_child(line)};
  }
  return std::nullopt;
}

/// "terminate called after throwing an instance of 'X'" with its "what():".
std::optional<Found> terminate_at(const Lines& lines, std::size_t i) {
  const auto line = trimmed(lines[i]);
  constexpr std::string_view kAbi = "libc++abi: ";
  if (line.starts_with(kAbi)) return Found{std::string(line.substr(kAbi.size())), i};
  if (!line.starts_with("terminate called ")) return std::nullopt;
  const auto quote = line.find('\'');
  const auto end = line.rfind('\'');
  constexpr std::string_view kWhat = "what():";
  const auto next = i + 1 < lines.size() ? trimmed(lines[i + 1]) : std::string_view();
  if (quote == std::string_view::npos || end <= quote || !next.starts_with(kWhat)) return Found{std::string(line), i};
  const auto type = std::string(line.substr(quote + 1, end - quote - 1));
  return Found{type + ": " + std::string(trimmed(next.substr(kWhat.size()))), i + 1};
}

std::optional<Found> panic_at(const Lines& lines, std::size_t i) {
  const auto line = trimmed(lines[i]);
  if (line.starts_with("panic: ") || line.starts_with("fatal error: ")) return Found{std::string(line), i};
  constexpr std::string_view kJulia = "ERROR: ";
  if (line.starts_with(kJulia) && i + 1 < lines.size() && lines[i + 1].starts_with("Stacktrace:")) {
    return Found{std::string(line.substr(kJulia.size())), i};
  }
  const auto panicked = line.find(" panicked at ");
  if (!line.starts_with("thread '") || panicked == std::string_view::npos) return std::nullopt;
  return Found{with_next(lines, i).substr(panicked + 1), i};
}

constexpr std::array<std::string_view, 12> kAborts = {
    "*** ",
    "free(): ",
    "malloc(): ",
    "malloc_consolidate(): ",
    "realloc(): ",
    "munmap_chunk(): ",
    "double free or corruption",
    "corrupted size vs. prev_size",
    "corrupted double-linked list",
    "tcache_thread_shutdown(): ",
    "Fatal glibc error: ",
    "Fatal Python error: ",
};

std::optional<Found> abort_at(const Lines& lines, std::size_t i) {
  const auto line = trimmed(lines[i]);
  for (const auto start : kAborts) {
    if (!line.starts_with(start)) continue;
    if (start == "*** " && !line.ends_with("***: terminated")) continue;
    return Found{std::string(line), i};
  }
  if (contains(line, "Assertion `") && contains(line, "failed")) return Found{std::string(line), i};
  for (const std::string_view mark : {"AddressSanitizer: ", "LeakSanitizer: ", "MemorySanitizer: ", "Check failed: "}) {
    const auto at = line.find(mark);
    if (at != std::string_view::npos && !line.starts_with("SUMMARY")) return Found{std::string(line.substr(at)), i};
  }
  constexpr std::string_view kJava = "Exception in thread ";
  if (line.starts_with(kJava)) {
    const auto name = line.find("\" ");
    return Found{std::string(name == std::string_view::npos ? line : line.substr(name + 2)), i};
  }
  return std::nullopt;
}

bool equal_but_case(char a, char b) {
  return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
}
std::size_t find_in_any_case(std::string_view text, std::string_view part) {
  const auto found = std::ranges::search(text, part, equal_but_case);
  return found.empty() ? std::string_view::npos : static_cast<std::size_t>(found.begin() - text.begin());
}
bool contains_in_any_case(std::string_view text, std::string_view part) {
  return find_in_any_case(text, part) != std::string_view::npos;
}

/// "0.31 at step 10", "12%".
bool begins_with_digits(std::string_view text) {
  text = trimmed(text);
  if (!text.empty() && (text.front() == '-' || text.front() == '+' || text.front() == '.')) text.remove_prefix(1);
  return !text.empty() && is_digit(text.front());
}
/// And "nan": what follows the name of a quantity.
bool begins_with_number(std::string_view text) {
  const auto word = trimmed(text).substr(0, trimmed(text).find_first_of(" ,;"));
  return begins_with_digits(text) || word == "nan" || word == "-nan" || word == "inf" || word == "-inf";
}

/// "SyntaxError: ...", "torch.OutOfMemoryError: ...", "Error: boom": an exception's line without a traceback before it.
std::optional<Found> exception_at(const Lines& lines, std::size_t i) {
  const std::string_view line = lines[i];
  if (line.empty() || line.front() == ' ' || !begins_with_name(line)) return std::nullopt;
  const auto name = line.substr(0, line.find(':'));
  const bool fits = name.ends_with("Error") || name.ends_with("Exception") || name == "KeyboardInterrupt";
  if (!fits || (name.size() < line.size() && begins_with_digits(line.substr(name.size() + 1)))) return std::nullopt;
  return Found{with_next(lines, i), i, is_of_child(line)};
}

std::optional<Found> error_at(const Lines& lines, std::size_t i) {
  for (const auto look : {traceback_at, terminate_at, panic_at, abort_at, exception_at}) {
    if (auto found = look(lines, i)) return found;
  }
  return std::nullopt;
}

enum class Level { kNone, kHarmless, kError };

/// Of the word of a logger: "[info]", "WARNING:root:x", and of glog "W1123".
Level level_of(std::string_view word) {
  const bool glog = word.size() == 5 && std::ranges::all_of(word.substr(1), is_digit);
  if (glog) {
    if (word[0] == 'I' || word[0] == 'W') return Level::kHarmless;
    return word[0] == 'E' || word[0] == 'F' ? Level::kError : Level::kNone;
  }
  for (const std::string_view name : {"INFO", "DEBUG", "TRACE", "NOTICE", "WARNING", "WARN"}) {
    if (std::ranges::equal(word, name, equal_but_case)) return Level::kHarmless;
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

/// What stands after "train.py: " or "run.sh: line 3: "; the whole line where a program's name does not begin it.
std::string_view without_program(std::string_view line) {
  const auto colon = line.substr(0, line.find(' ')).size();
  if (colon == line.size() || colon < 2 || line[colon - 1] != ':') return line;
  const auto name = line.substr(0, colon - 1);
  if (std::ranges::equal(name, std::string_view("error"), equal_but_case) || name == "fatal") return line;
  auto rest = trimmed(line.substr(colon));
  const auto number = rest.starts_with("line ") ? rest.substr(5) : rest;
  const auto digits = number.find_first_not_of("0123456789");
  if (digits != 0 && digits != std::string_view::npos && number.substr(digits).starts_with(": ")) {
    rest = trimmed(number.substr(digits + 1));
  }
  return rest;
}

/// What shells and tools say of an error: at the start of the line, or after their name.
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
    if (line.size() >= end.size() && std::ranges::equal(line.substr(line.size() - end.size()), end, equal_but_case)) {
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

/// Whether a number stands in it by itself: "step 40 loss 2.1", "7/100", "12%". Programs tell their progress so.
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
  if (line.size() > kError.size() && std::ranges::equal(line.substr(0, kError.size()), kError, equal_but_case)) {
    line.remove_prefix(kError.size());
    const auto code = line.rfind(" (exit code ");
    if (code != std::string_view::npos && line.ends_with(')')) line = line.substr(0, code);
  }
  return std::string(line);
}

/// What nobody's last words look like, but a tool, a shell or a logger may say. The program ended with it only where
/// nothing comes after it.
std::string said_error(const Lines& lines) {
  std::string sentence;
  const auto end = lines.size() - std::min(lines.size(), kAtEnd);
  for (auto i = lines.size(); i-- > end;) {
    const auto line = trimmed(lines[i]);
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
    if (last && is_sentence(lines[i])) sentence = std::string(kLastLine) + std::string(line);
  }
  return sentence;
}

}  // namespace

std::string first_line(std::string_view text) {
  Lines lines;
  while (!text.empty() && lines.size() < 2) {
    const auto end = text.find('\n');
    const auto line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!trimmed(line).empty()) lines.emplace_back(line);
  }
  return lines.empty() ? std::string() : with_next(lines, 0);
}

std::string error_line(std::string_view log) {
  const auto lines = last_lines(log);
  std::string own, of_child;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto found = error_at(lines, i);
    if (!found) continue;
    (found->of_child ? of_child : own) = found->words;
    i = found->last;
  }
  if (!own.empty()) return own;
  if (!of_child.empty()) return of_child;
  return said_error(lines);
}

}  // namespace beside
