#pragma once

#include <stdexcept>
#include <string>

namespace cli {

/// What `muster` exits with.
enum Exit : int {
  kSuccess = 0,
  kJobFailed = 1,    // or was cancelled; doctor: something is wrong
  kUsage = 2,        // wrong options, job file or configuration, or the job's state does not allow it
  kNotFound = 3,     // no such job or attempt
  kUnreachable = 4,  // no controller there, or it refuses the token
  kRefused = 5,      // a limit of the controller (a full disk, too) or the scheduler
  kTimedOut = 124,
  kInterrupted = 130,
};

/// Ends the program: the text, which names the next thing to try, goes to stderr.
class Failure : public std::runtime_error {
 public:
  Failure(Exit exit, const std::string& text) : std::runtime_error(text), exit_(exit) {}
  Exit exit() const { return exit_; }

 private:
  Exit exit_;
};

}  // namespace cli
