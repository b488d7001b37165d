#pragma once

#include <string>
#include <string_view>

#include "agent/watch/agent_files.h"
#include "spec/exit_codes.h"

namespace agent::watch {

/// The line of a program's output that names the error it ended with; empty: none is found.
///
/// Errors that are known by the shape that runtimes give their last words: Python's tracebacks (of chained exceptions
/// the last, of an exception group the group), also where a launcher or torch puts the rank before each line;
/// "terminate called" and "what():" of C++; panics of Rust and Go; aborts of glibc; asserts; sanitizers; the JVM. They
/// count when they stand within the last kNearEnd lines. What a launcher says of a child that failed counts only where
/// the child itself said nothing.
///
/// The first cause is told where several ranks write into one log: the error of the rank that torchelastic's block
/// "Root Cause" names; without such a block the earliest last error of a rank. An error that says that another rank has
/// gone (protocol::is_of_a_survivor) counts only where there is no other.
///
/// Failing those, what a tool or a shell says of an error in the log's last line: "train.py: error: no --lr".
///
/// Failing that, what need not be the error that the program ended with. It begins with words that say so: "logged: "
/// before the last line within kAtEnd that a logger or a tool called an error; "last line: " before the log's last
/// line, if that is a sentence and no progress. A quantity ("validation error: 0.31") and what a logger calls a warning
/// or less are neither.
///
/// Nothing is better than a line that is about something else: a program may print an error and go on.
std::string error_line(std::string_view log);

/// Finds an error in the same way, but only one of a runtime that the log ends with: at most three lines follow.
std::string closing_error(std::string_view log);

inline constexpr std::size_t kNearEnd = 200;
inline constexpr std::size_t kAtEnd = 20;
/// True if what the program wrote last may tell why it ended so. Not where it was done or left as asked, nor where it
/// was killed from outside: then its last error line is about something else.
bool may_have_words(const spec::ExitStatus& end);

/// The message of torchelastic's error file; empty: the text is no such file's.
std::string words_of_error_file(std::string_view text);
/// One line of valid UTF-8 without control characters, at most kMostWords bytes; a longer one ends with "...".
std::string fit_for_a_sentence(std::string_view text);

/// The program's own words: of its error file, else of the last kMostRead bytes of its log. Where those tell only that
/// somebody else has gone, the error files of a launcher's workers are read. Reads regular files
/// alone, and waits as long as their file system does.
std::string read_last_words(const RankFiles& files);

/// True if a rank that muster has asked to leave may have failed by itself before.
bool may_have_failed(const spec::ExitStatus& end);
/// The error that a rank closes with which muster has asked to leave because another rank failed: its own failure may
/// have come first. Only a sure error that nothing follows, and none that says that another rank has gone; else empty.
std::string read_own_failure(const RankFiles& files);

inline constexpr std::size_t kMostWords = 300;
inline constexpr std::size_t kMostRead = 64 << 10;

}  // namespace agent::watch
