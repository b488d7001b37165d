#include "agent/watch/root_cause.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "agent/watch/log_lines.h"

namespace agent::watch {
namespace {

using namespace log;

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
