#pragma once

#include <cstdio>
#include <string>

namespace worker {

/// The log of one rank: lines on stdout, each written at once.
class RankLog {
 public:
  explicit RankLog(int rank) : rank_(rank) {}

  /// Writes "[rank 3] " and a line formatted as by std::printf.
  template <class... Args>
  void say(const char* format, Args... args) const {
    char line[2048];
    std::snprintf(line, sizeof line, format, args...);
    std::printf("[rank %d] %s\n", rank_, line);
    std::fflush(stdout);
  }
  void say(const char* text) const { say("%s", text); }
  void say(const std::string& text) const { say("%s", text.c_str()); }

 private:
  int rank_;
};

}  // namespace worker
