#include "agent/watch/error_line.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "agent/protocol/survivors.h"
#include "agent/watch/error_shapes.h"
#include "agent/watch/log_lines.h"
#include "agent/watch/root_cause.h"
#include "agent/watch/said_error.h"

namespace agent::watch {
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

/// Of the errors of several ranks the first that no other rank's end explains.
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

/// What the worker said itself in the log, or into its error file; empty: nothing, or that another one has gone.
std::string own_words(const WorkerFailure& worker, const std::map<int, LastError>& errors) {
  for (const int rank : {worker.rank, worker.local_rank}) {
    const auto own = errors.find(rank);
    if (rank != log::kNoRank && own != errors.end() && !protocol::is_of_a_survivor(own->second.words)) {
      return own->second.words;
    }
  }
  return protocol::is_of_a_survivor(worker.error) ? std::string() : worker.error;
}

/// What the launcher's word on the first failure leads to; empty: it says no more than the lines do.
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
