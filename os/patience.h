#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

namespace os {

/// Runs `task` in a thread of its own and waits for its end, at most `patience`. False: it has not ended yet. Then it
/// goes on by itself, for a call to a file system that does not answer can't be taken back, and must own all that it
/// uses. While kMostStuck of them go on so, nothing more is begun and the answer is false at once.
bool run_within(std::chrono::milliseconds patience, std::function<void()> task);
inline constexpr int kMostStuck = 16;

/// The answer of `ask`, if it comes in time and is no exception.
template <class Answer>
std::optional<Answer> ask_within(std::chrono::milliseconds patience, std::function<Answer()> ask) {
  const auto answer = std::make_shared<std::optional<Answer>>();
  const bool ended = run_within(patience, [answer, ask = std::move(ask)] {
    try {
      *answer = ask();
    } catch (...) {  // as good as no answer
    }
  });
  return ended ? std::move(*answer) : std::nullopt;
}

}  // namespace os
