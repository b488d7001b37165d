#include "agent/process/orphans.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <exception>
#include <filesystem>

#include "contract/variables.h"
#include "os/process_table.h"

namespace agent {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
constexpr milliseconds kLookAgain{20};

/// Calls `round` until it says that nothing is left.
template <class Round>
bool until_nothing_is_left(milliseconds patience, Round&& round) {
  for (const auto give_up = Clock::now() + patience;; ::poll(nullptr, 0, static_cast<int>(kLookAgain.count()))) {
    try {
      if (round()) return true;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "muster: cannot look for what ranks left behind: %s\n", error.what());
    }
    if (Clock::now() >= give_up) return false;
  }
}

bool is_of_earlier(const os::ProcessStat& process, const AttemptMark& mark) {
  const auto folder = os::variable_of_process(process.pid, contract::variable::kAttemptFolder);
  if (!folder || *folder == mark.folder) return false;
  const auto job = [](const std::string& attempt) { return std::filesystem::path(attempt).parent_path(); };
  if (job(*folder) != job(mark.folder)) return false;
  const auto number = os::variable_of_process(process.pid, contract::variable::kAttempt);
  std::int64_t value = 0;
  if (!number || std::from_chars(number->data(), number->data() + number->size(), value).ec != std::errc())
    return false;
  return value > 0 && value < mark.number;
}

}  // namespace

bool end_children(milliseconds patience) {
  return until_nothing_is_left(patience, [] {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (::waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD) return true;
    for (const auto& process : os::all_processes()) {
      if (process.parent == ::getpid()) os::kill_exactly(process);
    }
    return false;
  });
}

bool end_earlier_attempts(const AttemptMark& mark, milliseconds patience) {
  return until_nothing_is_left(patience, [&] {
    bool none = true;
    for (const auto& process : os::all_processes()) {
      if (process.is_dead() || process.pid == ::getpid() || !is_of_earlier(process, mark)) continue;
      os::kill_exactly(process);
      none = false;
    }
    return none;
  });
}

}  // namespace agent
