#pragma once

#include <stdexcept>
#include <string>

namespace cli {

/// The exit codes of `muster`.
enum Exit : int {
  kSuccess = 0,
  kJobFailed = 1,    // the job failed or was cancelled; doctor: a check failed
  kUsage = 2,        // bad options, job file or configuration, or the job's state does not allow the request
  kNotFound = 3,     // there is no such job or attempt
  kUnreachable = 4,  // the controller does not answer, or refuses the token
  kRefused = 5,      // a limit of the controller (also a full disk) or the scheduler
  kTimedOut = 124,
  kInterrupted = 130,
};

/// Ends the program. Its text goes to stderr, and says what to try next.
class Failure : public std::runtime_error {
 public:
  Failure(Exit exit, const std::string& text) : std::runtime_error(text), exit_(exit) {}
  Exit exit() const { return exit_; }

 private:
  Exit exit_;
};

}  // namespace cli
