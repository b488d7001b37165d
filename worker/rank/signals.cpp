#include "rank/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "rank/exit_codes.h"

namespace worker {
namespace {

std::atomic<bool> stop_asked{false};
std::atomic<int> terms{0};
std::atomic<bool> something_to_save{false};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free,
              "signal handlers may touch lock-free atomics only");

extern "C" void on_stop_signal(int number) {
  const bool again = number == SIGTERM && terms.fetch_add(1) > 0;
  if (again || !something_to_save.load()) ::_exit(kExitRequeue);
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
  terms.store(0);
  something_to_save.store(false);
}

}  // namespace worker
