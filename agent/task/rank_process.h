#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace worker::task {

/// A rank's program as a child in a process group of its own, both outputs appended to one log.
class RankProcess {
 public:
  struct Plan {
    std::vector<std::string> argv;
    std::map<std::string, std::string> environment;  // whole
    std::string working_folder;
    std::filesystem::path log;
  };
  /// Throws std::runtime_error, in words for people, if the program can't be executed; nothing runs then.
  explicit RankProcess(const Plan& plan);

  pid_t pid() const { return pid_; }
  /// To the whole group.
  void signal(int number) const;
  /// True while a SIGSTOP or the like holds it.
  bool stopped() const;

 private:
  pid_t pid_ = -1;
};

}  // namespace worker::task
