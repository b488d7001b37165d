#pragma once

#include <string>
#include <string_view>

#include "agent/watch/log_lines.h"

namespace agent::watch {

/// An error that looks like nobody's last words, but that a tool, a shell or a logger may say. The program ended with
/// this error only where nothing comes after it.
std::string said_error(const log::Lines& lines);

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
/// Failing that, what need not be the error that the program ended with. It begins with words that say so: kLogged
/// before the last line within kAtEnd that a logger or a tool called an error; kLastLine before the log's last line, if
/// that is a sentence and no progress. A quantity ("validation error: 0.31") and what a logger calls a warning or less
/// are neither.
///
/// Nothing is better than a line that is about something else: a program may print an error and go on.
std::string error_line(std::string_view log);

/// Finds an error in the same way, but only one of a runtime that the log ends with: at most kAfterError lines follow.
std::string closing_error(std::string_view log);

/// core::is_surely_an_error() knows them, too.
inline constexpr std::string_view kLastLine = "last line: ";
inline constexpr std::string_view kLogged = "logged: ";

/// Up to the first line break; with the next line where this one ends in a colon.
std::string first_line(std::string_view text);

inline constexpr std::size_t kNearEnd = 200;
inline constexpr std::size_t kAtEnd = 20;
/// Such as a warning of a library that is torn down.
inline constexpr std::size_t kAfterError = 3;

}  // namespace agent::watch
