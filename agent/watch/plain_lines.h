#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace agent::watch {

/// Cuts what a program writes for a terminal into lines of plain text. "\n", "\r" and "\b" end a line, so each state of
/// a progress bar is a line of its own. Colours and other commands to a terminal are left out, and so are empty lines.
class PlainLines {
 public:
  using Take = std::function<void(std::string_view line)>;

  /// Hands out each line that ends in these bytes, which follow those of the last call.
  void feed(std::string_view bytes, const Take& take);
  /// Hands out a last line without an end.
  void finish(const Take& take);

  /// Of a longer line only so many bytes are kept.
  static constexpr std::size_t kLongest = 16 << 10;

 private:
  enum class State { kText, kEscape, kCommand, kTitle, kTitleEscape };
  void end_line(const Take& take);
  State after(char c) const;

  State state_ = State::kText;
  std::size_t command_bytes_ = 0;
  std::string line_;
};

}  // namespace agent::watch
