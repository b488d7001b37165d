#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/claimed_port.h"

namespace worker::testing {

using namespace std::chrono_literals;

/// A started program. The destructor kills it if it still runs.
class Process {
 public:
  /// `address_space_bytes` of 0 means no limit.
  Process(const std::string& program, const std::vector<std::string>& arguments,
          const std::map<std::string, std::string>& environment, const std::filesystem::path& log,
          std::int64_t address_space_bytes = 0);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t id() const { return pid_; }
  void signal(int number) const;
  /// Sends the signal and returns once the process has received it or is gone. So a second signal is not merged with
  /// the first.
  void signal_and_wait(int number) const;
  /// The exit code, or 128 + signal for a killed process. Returns nullopt when it still runs after `limit`.
  std::optional<int> wait(std::chrono::milliseconds limit);

 private:
  pid_t pid_ = -1;
  std::optional<int> status_;
};

/// One line of a rank's metrics file: the fields as they were written.
using Line = std::map<std::string, std::string>;

/// An attempt: one muster-worker per rank, in a folder that outlives the object.
class Ranks {
 public:
  struct Options {
    int world_size = 2;
    std::int64_t attempt = 0;
    std::string label = "run";  ///< metrics and logs are <label>.<rank>.jsonl and .log in the folder
    std::int64_t address_space_bytes = 0;
    bool own_homes = false;  ///< each rank's HOME is home.<rank> in the folder, as on nodes that share none
  };
  Ranks(const std::filesystem::path& folder, const std::string& run_json, const Options& options);

  const Process& rank(int number) const { return *processes_.at(static_cast<std::size_t>(number)); }
  /// The exit code of every rank; -1 for a rank that still runs at the limit.
  std::vector<int> wait(std::chrono::milliseconds limit = 60s);
  /// The exit code of one rank; -1 if it still runs at the limit.
  int wait_rank(int number, std::chrono::milliseconds limit);
  /// Waits until rank `number` has reported `step`. Returns false if that takes longer than `limit`.
  bool reached(int number, std::int64_t step, std::chrono::milliseconds limit = 60s) const;

  std::vector<Line> lines(int number, const std::string& kind) const;
  std::string log(int number) const;

 private:
  std::filesystem::path file(int number, const char* extension) const;

  std::filesystem::path folder_;
  Options options_;
  test::ClaimedPort master_port_;
  std::vector<std::unique_ptr<Process>> processes_;
};

}  // namespace worker::testing
