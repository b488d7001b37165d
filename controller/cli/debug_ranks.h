#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "launch/environment.h"

namespace cli {

/// How to start one rank of a debug run.
struct DebugRank {
  std::vector<std::string> words;
  launch::Environment environment;
  std::string working_folder;
  std::filesystem::path stop_file;  // the value of MUSTER_STOP
};

/// The processes of a debug run, in the foreground of this terminal.
class DebugRanks {
 public:
  /// Starts all ranks. If one cannot be started, ends the others and throws a Failure.
  explicit DebugRanks(const std::vector<DebugRank>& ranks);
  ~DebugRanks();
  DebugRanks(const DebugRanks&) = delete;
  DebugRanks& operator=(const DebugRanks&) = delete;

  /// Waits until all ranks have ended. Returns muster's exit code.
  int wait(std::chrono::milliseconds stop_grace);

 private:
  struct Rank {
    pid_t pid = -1;  // -1: the rank has ended
    int output = -1;
    std::filesystem::path stop_file = {};
    std::string line = {};  // the unfinished line at the end of the output
  };
  void start(const DebugRank& rank, std::size_t number);
  void take_ends();
  /// Returns false if no output came in this time.
  bool read_outputs(std::chrono::milliseconds patience);
  void take(Rank& rank, std::size_t number);
  void signal_all(int number);
  void ask_to_leave(std::chrono::milliseconds stop_grace);
  bool any_left() const;

  std::vector<Rank> ranks_;
  std::optional<int> first_failure_;  // the exit code of the first rank that failed
};

}  // namespace cli
