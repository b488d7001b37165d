#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The end of a program's log as lines, and what is asked of a line.
namespace agent::watch::log {

inline constexpr int kNoRank = -1;

struct Line {
  std::string text;    // without colours and without the rank that a launcher puts before it
  int rank = kNoRank;  // that rank
};
using Lines = std::vector<Line>;

/// The last lines that are not blank, oldest first, `most` at most. "\r" ends a line, too, as progress bars use it.
Lines last_lines(std::string_view log, std::size_t most);

/// The line; with the next one where this one ends in a colon.
std::string with_next(const Lines& lines, std::size_t i);

bool is_digit(char c);
bool contains(std::string_view text, std::string_view part);
std::string_view trimmed(std::string_view text);
bool equal_in_any_case(std::string_view a, std::string_view b);
std::size_t find_in_any_case(std::string_view text, std::string_view part);
bool contains_in_any_case(std::string_view text, std::string_view part);
/// "0.31 at step 10", "12%".
bool begins_with_digits(std::string_view text);

}  // namespace agent::watch::log

namespace agent::watch {

/// An error that a runtime has printed.
struct FoundError {
  std::string words;
  std::size_t last = 0;   // the line that it ends with
  bool of_child = false;  // what a launcher says of a program that it started
};

/// The error whose first line is line i: a traceback of Python, "terminate called", a panic, an abort, or the line of
/// an exception alone. error_line() in last_words.h lists the shapes.
std::optional<FoundError> error_at(const log::Lines& lines, std::size_t i);

/// Facts that torchelastic (torchrun, accelerate launch) tells of one worker that failed.
struct WorkerFailure {
  int rank = log::kNoRank;
  int local_rank = log::kNoRank;
  std::string time;         // "2026-11-28_07:00:10": of the error, to a second
  bool was_killed = false;  // by SIGKILL, which leaves no words
  bool had_signal = false;  // a signal ended it, but not SIGTERM, with which torchelastic ends the other workers
  std::string error;        // of the worker's error file; empty: the worker wrote none
  std::string error_file;   // empty: none
  std::string end;          // "rank 1 of the launcher was killed by SIGKILL", "... exited with 1"
};

/// The worker that failed first.
struct RootCause : WorkerFailure {
  std::vector<WorkerFailure> others;  // the other workers that failed, the earliest first
};

/// The last block "Root Cause (first observed failure)" of the lines; nullopt: there is none.
std::optional<RootCause> root_cause(const log::Lines& lines);

/// How RootCause::end tells that a worker exited, which says nothing of why.
inline constexpr std::string_view kWorkerExited = " of the launcher exited with ";

}  // namespace agent::watch
