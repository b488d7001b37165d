#include "cli/interrupts.h"

#include <signal.h>
#include <unistd.h>

#include <thread>

#include "cli/failure.h"

namespace cli {

Interrupts& Interrupts::instance() {
  static auto* const only = new Interrupts();  // never destroyed, since its thread uses it until the process ends
  return *only;
}

Interrupts::Interrupts() {
  struct sigaction now {};
  if (sigaction(SIGINT, nullptr, &now) == 0 && now.sa_handler == SIG_IGN)
    return;  // SIGINT is ignored: nohup, or a background job
  sigset_t interrupt;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  pthread_sigmask(SIG_BLOCK, &interrupt, nullptr);
  std::thread([this, interrupt] {
    for (int signal = 0; sigwait(&interrupt, &signal) == 0;) on_interrupt();
  }).detach();
}

void Interrupts::on_interrupt() {
  if (left_to_children_) return;
  if (!gently_ || requested_.exchange(true)) _exit(kInterrupted);
  std::lock_guard lock(mutex_);
  if (call_ != nullptr) call_->TryCancel();
  woken_.notify_all();
}

bool Interrupts::sleep(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return !woken_.wait_for(lock, time, [this] { return requested(); });
}

Interrupts::Scope::Scope(grpc::ClientContext& context) {
  auto& interrupts = instance();
  std::lock_guard lock(interrupts.mutex_);
  interrupts.call_ = &context;
  if (interrupts.requested_) context.TryCancel();
}

Interrupts::Scope::~Scope() {
  auto& interrupts = instance();
  std::lock_guard lock(interrupts.mutex_);
  interrupts.call_ = nullptr;
}

}  // namespace cli
