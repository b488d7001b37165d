#include "agent/watch/log_lines.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <utility>

namespace agent::watch::log {
namespace {

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

struct Prefix {
  std::size_t size = 0;
  int rank = kNoRank;
};

/// The prefix of a launcher or a logger before each line of a rank: "[rank0]: ", "[default3]:", "[rank 1] ", "7: ".
Prefix prefix_of(std::string_view line) {
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
  int rank = 0;
  while (i < line.size() && is_digit(line[i]) && i - digits <= 5) rank = 10 * rank + (line[i++] - '0');
  if (i == digits || i - digits > 5) return {};
  if (bracket) {
    if (i >= line.size() || line[i] != ']') return {};
    ++i;
    if (i < line.size() && line[i] == ':') ++i;
  } else {
    if (i >= line.size() || line[i] != ':') return {};
    ++i;
  }
  const bool spaced = i < line.size() && line[i] == ' ';
  if (!bracket && !spaced && i < line.size()) return {};
  return {i + (spaced ? 1 : 0), rank};
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

bool equal_but_case(char a, char b) {
  return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
}

}  // namespace

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool equal_in_any_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, equal_but_case);
}

std::size_t find_in_any_case(std::string_view text, std::string_view part) {
  const auto found = std::ranges::search(text, part, equal_but_case);
  return found.empty() ? std::string_view::npos : static_cast<std::size_t>(found.begin() - text.begin());
}

bool contains_in_any_case(std::string_view text, std::string_view part) {
  return find_in_any_case(text, part) != std::string_view::npos;
}

bool begins_with_digits(std::string_view text) {
  text = trimmed(text);
  if (!text.empty() && (text.front() == '-' || text.front() == '+' || text.front() == '.')) text.remove_prefix(1);
  return !text.empty() && is_digit(text.front());
}

std::string with_next(const Lines& lines, std::size_t i) {
  std::string line(trimmed(lines[i].text));
  if (line.ends_with(':') && i + 1 < lines.size()) line += " " + std::string(trimmed(lines[i + 1].text));
  return line;
}

Lines last_lines(std::string_view log, std::size_t most) {
  Lines lines;
  while (!log.empty() && lines.size() < most) {
    while (!log.empty() && (log.back() == '\n' || log.back() == '\r')) log.remove_suffix(1);
    const auto end = log.find_last_of("\n\r");
    const auto raw = end == std::string_view::npos ? log : log.substr(end + 1);
    log.remove_suffix(raw.size());
    auto line = plain(raw);
    const auto prefix = prefix_of(line);
    line.erase(0, prefix.size);
    if (const auto bare = without_drawing(line); !trimmed(bare).empty())
      lines.push_back({std::string(bare), prefix.rank});
  }
  std::ranges::reverse(lines);
  return lines;
}

}  // namespace agent::watch::log

namespace agent::watch {
namespace {

using namespace log;

bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '<' || c == '>' || c == '$';
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

/// True if the line is "Name: ..." or "Name" alone.
bool begins_with_name(std::string_view line) {
  const auto end = static_cast<std::size_t>(std::ranges::find_if_not(line, is_name) - line.begin());
  if (end == 0 || is_digit(line.front())) return false;
  return end == line.size() || line[end] == ':';
}

bool is_of_child(std::string_view exception) {
  return contains(exception.substr(0, exception.find(' ')), "ChildFailedError") ||
         exception.starts_with("subprocess.CalledProcessError") || exception.starts_with("CalledProcessError");
}

/// A Python traceback that begins at line i.
std::optional<FoundError> traceback_at(const Lines& lines, std::size_t i) {
  const auto head = trimmed(lines[i].text);
  if (!head.starts_with("Traceback (most recent call last)") &&
      !head.starts_with("Exception Group Traceback (most recent call last)")) {
    return std::nullopt;
  }
  const auto indent = lines[i].text.find_first_not_of(' ');
  std::string place;
  for (++i; i < lines.size(); ++i) {
    const auto own = lines[i].text.find_first_not_of(' ');
    if (own == std::string::npos) continue;
    if (own > indent) {
      if (auto frame = place_of(lines[i].text); !frame.empty()) place = std::move(frame);
      continue;
    }
    const auto line = trimmed(lines[i].text);
    if (!begins_with_name(line)) return std::nullopt;
    auto words = with_next(lines, i);
    const bool bare = !contains(line, ": ");
    if (bare && words == line && !place.empty()) words += " (" + place + ")";
    return FoundError{words, i, is_of_child(line)};
  }
  return std::nullopt;
}

/// "terminate called after throwing an instance of 'X'" with its "what():".
std::optional<FoundError> terminate_at(const Lines& lines, std::size_t i) {
  const auto line = trimmed(lines[i].text);
  constexpr std::string_view kAbi = "libc++abi: ";
  if (line.starts_with(kAbi)) return FoundError{std::string(line.substr(kAbi.size())), i};
  if (!line.starts_with("terminate called ")) return std::nullopt;
  const auto quote = line.find('\'');
  const auto end = line.rfind('\'');
  constexpr std::string_view kWhat = "what():";
  const auto next = i + 1 < lines.size() ? trimmed(lines[i + 1].text) : std::string_view();
  if (quote == std::string_view::npos || end <= quote || !next.starts_with(kWhat))
    return FoundError{std::string(line), i};
  const auto type = std::string(line.substr(quote + 1, end - quote - 1));
  return FoundError{type + ": " + std::string(trimmed(next.substr(kWhat.size()))), i + 1};
}

std::optional<FoundError> panic_at(const Lines& lines, std::size_t i) {
  const auto line = trimmed(lines[i].text);
  if (line.starts_with("panic: ") || line.starts_with("fatal error: ")) return FoundError{std::string(line), i};
  constexpr std::string_view kJulia = "ERROR: ";
  if (line.starts_with(kJulia) && i + 1 < lines.size() && lines[i + 1].text.starts_with("Stacktrace:")) {
    return FoundError{std::string(line.substr(kJulia.size())), i};
  }
  const auto panicked = line.find(" panicked at ");
  if (!line.starts_with("thread '") || panicked == std::string_view::npos) return std::nullopt;
  return FoundError{with_next(lines, i).substr(panicked + 1), i};
}

constexpr std::array<std::string_view, 12> kAborts = {"*** ",
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
                                                      "Fatal Python error: "};

std::optional<FoundError> abort_at(const Lines& lines, std::size_t i) {
  const auto line = trimmed(lines[i].text);
  for (const auto start : kAborts) {
    if (!line.starts_with(start)) continue;
    if (start == "*** " && !line.ends_with("***: terminated")) continue;
    return FoundError{std::string(line), i};
  }
  if (contains(line, "Assertion `") && contains(line, "failed")) return FoundError{std::string(line), i};
  for (const std::string_view mark : {"AddressSanitizer: ", "LeakSanitizer: ", "MemorySanitizer: ", "Check failed: "}) {
    const auto at = line.find(mark);
    if (at != std::string_view::npos && !line.starts_with("SUMMARY"))
      return FoundError{std::string(line.substr(at)), i};
  }
  constexpr std::string_view kJava = "Exception in thread ";
  if (line.starts_with(kJava)) {
    const auto name = line.find("\" ");
    return FoundError{std::string(name == std::string_view::npos ? line : line.substr(name + 2)), i};
  }
  return std::nullopt;
}

/// "SyntaxError: ...", "torch.OutOfMemoryError: ...", "Error: boom": an exception's line without a traceback before it.
std::optional<FoundError> exception_at(const Lines& lines, std::size_t i) {
  const std::string_view line = lines[i].text;
  if (line.empty() || line.front() == ' ' || !begins_with_name(line)) return std::nullopt;
  const auto name = line.substr(0, line.find(':'));
  const bool fits = name.ends_with("Error") || name.ends_with("Exception") || name == "KeyboardInterrupt";
  if (!fits || (name.size() < line.size() && begins_with_digits(line.substr(name.size() + 1)))) return std::nullopt;
  return FoundError{with_next(lines, i), i, is_of_child(line)};
}

}  // namespace

std::optional<FoundError> error_at(const Lines& lines, std::size_t i) {
  for (const auto look : {traceback_at, terminate_at, panic_at, abort_at, exception_at}) {
    if (auto found = look(lines, i)) return found;
  }
  return std::nullopt;
}

namespace {

/// The text after "name   : "; nullopt: the line is another one.
std::optional<std::string_view> field(std::string_view line, std::string_view name) {
  line = trimmed(line);
  if (!line.starts_with(name)) return std::nullopt;
  line = trimmed(line.substr(name.size()));
  if (!line.starts_with(':')) return std::nullopt;
  return trimmed(line.substr(1));
}

int number(std::string_view text) {
  int value = kNoRank;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// "Signal 9 (SIGKILL) received by PID 123": the part in brackets.
std::string_view signal_in(std::string_view text) {
  if (!text.starts_with("Signal ")) return {};
  const auto open = text.find('('), close = text.find(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return {};
  return text.substr(open + 1, close - open - 1);
}

bool ends_section(std::string_view line) {
  return line.starts_with("====") || line.starts_with("----");
}

/// The traceback begins behind the name of its field, and its lines are indented as the fields are. It ends where the
/// fields of the next worker begin.
std::string error_of_block(const Lines& lines, std::size_t i, std::string_view first) {
  Lines block{{std::string(first)}};
  const auto indent = lines[i].text.find_first_not_of(' ');
  for (++i; i < lines.size() && !ends_section(lines[i].text) && !field(lines[i].text, "time"); ++i) {
    const auto& text = lines[i].text;
    block.push_back({text.substr(std::min(indent, text.find_first_not_of(' ')))});
  }
  const auto found = error_at(block, 0);
  return found ? found->words : std::string();
}

void read_rank(std::string_view text, WorkerFailure& out) {
  out.rank = number(text);
  constexpr std::string_view kLocal = "local_rank: ";
  const auto local = text.find(kLocal);
  if (local != std::string_view::npos) out.local_rank = number(text.substr(local + kLocal.size()));
}

void read_end(std::string_view signal, std::string_view code, WorkerFailure& out) {
  out.was_killed = signal == "SIGKILL";
  out.had_signal = !signal.empty() && signal != "SIGTERM";
  const auto rank = "rank " + std::to_string(out.rank);
  if (!signal.empty()) {
    out.end = rank + " of the launcher was killed by " + std::string(signal);
  } else {
    out.end = rank + std::string(kWorkerExited) + (code.empty() ? "an error" : std::string(code));
  }
}

/// The fields of one worker, which begin at line i; nullopt: they are incomplete.
std::optional<WorkerFailure> failure_at(const Lines& lines, std::size_t i) {
  WorkerFailure out;
  std::string code;
  std::string_view signal;
  for (const auto first = i; i < lines.size() && !ends_section(lines[i].text); ++i) {
    const auto& line = lines[i].text;
    if (const auto time = field(line, "time")) {
      if (i > first) break;
      out.time = *time;
    } else if (const auto rank = field(line, "rank")) {
      read_rank(*rank, out);
    } else if (const auto exit = field(line, "exitcode")) {
      code = exit->substr(0, exit->find(' '));
    } else if (const auto file = field(line, "error_file")) {
      if (file->starts_with('/')) out.error_file = *file;
    } else if (const auto traceback = field(line, "traceback")) {
      signal = signal_in(*traceback);
      if (traceback->starts_with("Traceback ")) out.error = error_of_block(lines, i, *traceback);
      break;
    }
  }
  if (out.rank == kNoRank) return std::nullopt;
  read_end(signal, code, out);
  return out;
}

/// Those between the line "Failures:" and line `end`.
std::vector<WorkerFailure> failures_before(const Lines& lines, std::size_t end) {
  std::vector<WorkerFailure> out;
  auto begin = end;
  while (begin > 0 && lines[begin - 1].text != "Failures:") {
    if (lines[begin - 1].text.starts_with("====")) return out;
    --begin;
  }
  for (auto i = begin; begin > 0 && i < end; ++i) {
    if (!field(lines[i].text, "time")) continue;
    if (auto failure = failure_at(lines, i)) out.push_back(std::move(*failure));
  }
  std::ranges::stable_sort(out, {}, &WorkerFailure::time);
  return out;
}

}  // namespace

std::optional<RootCause> root_cause(const Lines& lines) {
  auto at = lines.size();
  while (at > 0 && !contains(lines[at - 1].text, "Root Cause (first observed failure)")) --at;
  if (at == 0) return std::nullopt;
  auto first = failure_at(lines, at);
  if (!first) return std::nullopt;
  return RootCause{std::move(*first), failures_before(lines, at - 1)};
}

}  // namespace agent::watch
