#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "launch/environment.h"

namespace cli {

/// One rank of a debug run, as it is to be started.
struct DebugRank {
  std::vector<std::string> words;
  launch::Environment environment;
  std::string working_folder;
  std::filesystem::path stop_file;  // what MUSTER_STOP names
};

/// The processes of a debug run, in this terminal's foreground.
class DebugRanks {
 public:
  /// Starts all of them. Throws Failure, with none left, where one can't be started.
  explicit DebugRanks(const std::vector<DebugRank>& ranks);
  ~DebugRanks();
  DebugRanks(const DebugRanks&) = delete;
  DebugRanks& operator=(const DebugRanks&) = delete;

  /// Until all have ended. Returns muster's exit code.
  int wait(std::chrono::milliseconds stop_grace);

 private:
  struct Rank {
    pid_t pid = -1;  // -1: it has ended
    int output = -1;
    std::filesystem::path stop_file = {};
    std::string line = {};  // read, and not whole yet
  };
  void start(const DebugRank& rank, std::size_t number);
  void take_ends();
  void read_outputs(std::chrono::milliseconds patience);
  void take(Rank& rank, std::size_t number);
  void signal_all(int number);
  void ask_to_leave(std::chrono::milliseconds stop_grace);
  bool any_left() const;

  std::vector<Rank> ranks_;
  std::optional<int> first_failure_;  // its exit code
};

}  // namespace cli
