#include "beside/root_cause.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "beside/error_shapes.h"

namespace beside {
namespace {

using namespace log;

/// What stands after "name   : "; nullopt: the line is another one.
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

/// The traceback begins behind the name of its field, and its lines are indented as the fields are.
std::string error_of_block(const Lines& lines, std::size_t i, std::string_view first) {
  Lines block{{std::string(first)}};
  const auto indent = lines[i].text.find_first_not_of(' ');
  for (++i; i < lines.size() && !lines[i].text.starts_with("===="); ++i) {
    const auto& text = lines[i].text;
    block.push_back({text.substr(std::min(indent, text.find_first_not_of(' ')))});
  }
  const auto found = error_at(block, 0);
  return found ? found->words : std::string();
}

}  // namespace

std::optional<RootCause> root_cause(const Lines& lines) {
  auto at = lines.size();
  while (at > 0 && !contains(lines[at - 1].text, "Root Cause (first observed failure)")) --at;
  if (at == 0) return std::nullopt;
  RootCause cause;
  std::string code;
  std::string_view signal;
  for (auto i = at; i < lines.size() && !lines[i].text.starts_with("===="); ++i) {
    if (const auto rank = field(lines[i].text, "rank")) {
      cause.rank = number(*rank);
      constexpr std::string_view kLocal = "local_rank: ";
      const auto local = rank->find(kLocal);
      if (local != std::string_view::npos) cause.local_rank = number(rank->substr(local + kLocal.size()));
    } else if (const auto exit = field(lines[i].text, "exitcode")) {
      code = exit->substr(0, exit->find(' '));
    } else if (const auto traceback = field(lines[i].text, "traceback")) {
      signal = signal_in(*traceback);
      if (traceback->starts_with("Traceback ")) cause.error = error_of_block(lines, i, *traceback);
      break;
    }
  }
  if (cause.rank == kNoRank) return std::nullopt;
  cause.was_killed = signal == "SIGKILL";
  cause.end =
      "rank " + std::to_string(cause.rank) + " of the launcher " +
      (signal.empty() ? "exited with " + (code.empty() ? "an error" : code) : "was killed by " + std::string(signal));
  return cause;
}

}  // namespace beside
