#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/temporary_folder.h"

namespace test {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// A child process of the test. Killed (by its own id) and reaped when the object goes, whatever happened to the test.
class Process {
 public:
  /// Starts it in a session of its own; stdout and stderr go to the files given (appended). `env` is added to ours,
  /// with every MUSTER_* variable of ours left out.
  Process(const std::vector<std::string>& argv, const std::map<std::string, std::string>& env,
          const std::filesystem::path& out, const std::filesystem::path& err);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number);
  bool running();
  /// Exit code, or 128 + signal. nullopt: still running after `limit`.
  std::optional<int> wait(std::chrono::milliseconds limit);

 private:
  pid_t pid_ = -1;
  std::optional<int> ended_;
};

struct Finished {
  int exit = -1;
  std::string out;
  std::string err;
  std::chrono::milliseconds took{0};
};

/// Runs to the end; a run over the limit is killed and has exit -1.
Finished run(const std::vector<std::string>& argv, const std::map<std::string, std::string>& env,
             std::chrono::milliseconds limit);

/// Polls until the condition holds; false after the limit. Pauses 10 ms, or twice what it took to ask, up to 200 ms:
/// where asking is a process, those who wait must not take the machine from those whom they wait for.
bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds limit);

}  // namespace test
