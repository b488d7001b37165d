#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace base {

/// Runs `task` in a thread of its own and waits for its end, at most `patience`. False: it has not ended yet. Then it
/// goes on by itself, for a call to a file system that does not answer can't be taken back, and must own all that it
/// uses. While kMostStuck of them go on so of one `whom`, nothing more of it is begun and the answer is false at once:
/// one file system that does not answer is no reason not to ask the others.
bool run_within(std::chrono::milliseconds patience, const std::string& whom, std::function<void()> task);
inline constexpr int kMostStuck = 16;
/// Runs `task` in the same way for a process that asks one file system alone.
inline bool run_within(std::chrono::milliseconds patience, std::function<void()> task) {
  return run_within(patience, std::string(), std::move(task));
}

/// Where the file system is mounted that a path is on: whom to ask. It is told by the path as it is written, without a
/// call to the file system. "/" if that is not known.
std::string file_system_of(const std::filesystem::path& path);
/// The place where the file system of `path` is mounted, by the text of /proc/self/mountinfo.
std::string file_system_of(const std::filesystem::path& path, std::istream& mountinfo);

/// The answer of `ask`, if it comes in time and is no exception.
template <class Answer>
std::optional<Answer> ask_within(std::chrono::milliseconds patience, const std::string& whom,
                                 std::function<Answer()> ask) {
  const auto answer = std::make_shared<std::optional<Answer>>();
  const bool ended = run_within(patience, whom, [answer, ask = std::move(ask)] {
    try {
      *answer = ask();
    } catch (...) {  // as good as no answer
    }
  });
  return ended ? std::move(*answer) : std::nullopt;
}
template <class Answer>
std::optional<Answer> ask_within(std::chrono::milliseconds patience, std::function<Answer()> ask) {
  return ask_within<Answer>(patience, std::string(), std::move(ask));
}

}  // namespace base
