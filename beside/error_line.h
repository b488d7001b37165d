#pragma once

#include <string>
#include <string_view>

namespace beside {

/// The line of a program's output that names the error it ended with; empty: none is found.
///
/// What it knows, by the shape that runtimes give their last words: Python's tracebacks (of chained exceptions the
/// last, of an exception group its last member), also where a launcher or torch puts the rank before each line;
/// "terminate called" and "what():" of C++; panics of Rust and Go; aborts of glibc; asserts; sanitizers; the JVM. They
/// count when they stand within the last kNearEnd lines. Failing those, the last line that says "error:" or the like,
/// within the last kAtEnd lines. What a launcher says of a child that failed counts only where the child itself said
/// nothing.
///
/// Nothing is better than a line that is about something else: a program may print an error and go on.
std::string error_line(std::string_view log);

/// Up to the first line break; with the next line where this one ends in a colon.
std::string first_line(std::string_view text);

inline constexpr std::size_t kNearEnd = 200;
inline constexpr std::size_t kAtEnd = 20;

}  // namespace beside
