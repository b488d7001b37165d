#include "agent/rank/signals.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "spec/exit_codes.h"

namespace agent::rank {
namespace {

constexpr std::int64_t kSameTermMs = 500;

std::atomic<bool> stop_asked{false};
std::atomic<std::int64_t> first_term_ms{0};
std::atomic<bool> something_to_save{false};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free,
              "signal handlers may touch lock-free atomics only");

std::int64_t now_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

/// True for a SIGTERM that is not the echo of the first: Slurm sends two at once when it preempts without grace.
bool is_second_term() {
  std::int64_t first = 0;
  const auto now = now_ms();
  return !first_term_ms.compare_exchange_strong(first, now) && now - first >= kSameTermMs;
}

extern "C" void on_stop_signal(int number) {
  const bool again = number == SIGTERM && is_second_term();
  if (again || !something_to_save.load()) ::_exit(spec::kExitRequeue);
  stop_asked.store(true);
}

void handle(int number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  ::sigaction(number, &action, nullptr);
}

}  // namespace

void install_stop_signals() {
  handle(SIGTERM, on_stop_signal);
  handle(SIGUSR2, on_stop_signal);
  handle(SIGCONT, SIG_IGN);
  handle(SIGPIPE, SIG_IGN);
}

void now_there_is_something_to_save() {
  something_to_save.store(true);
}

StopKind signalled_stop() {
  return stop_asked.load() ? StopKind::kSave : StopKind::kNone;
}

void forget_stop_signals() {
  stop_asked.store(false);
  first_term_ms.store(0);
  something_to_save.store(false);
}

}  // namespace agent::rank
