#include "controller/common/loop.h"

#include <pthread.h>
#include <spdlog/spdlog.h>

#include <exception>

namespace common {

Loop::Loop(std::string name, std::string trouble, bool threads, Step step)
    : name_(std::move(name)), trouble_(std::move(trouble)), threads_(threads), step_(std::move(step)) {}

void Loop::start(core::Millis pause) {
  std::lock_guard lock(mutex_);
  if (!threads_ || running_ || closed_) return;
  running_ = true;
  thread_ = std::thread([this, pause] { run(pause); });
  ::pthread_setname_np(thread_.native_handle(), name_.c_str());
}

void Loop::wake() {
  std::lock_guard lock(mutex_);
  awake_ = true;
  wake_.notify_all();
}

void Loop::stop() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  wake_.notify_all();
}

void Loop::run(std::optional<core::Millis> pause) {
  const auto called = [&] { return closed_ || awake_; };
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (pause) {
        wake_.wait_for(lock, *pause, called);
      } else {
        wake_.wait(lock, called);
      }
      if (closed_) return;
      awake_ = false;
    }
    pause = try_step();
  }
}

std::optional<core::Millis> Loop::try_step() {
  try {
    return step_();
  } catch (const std::exception& e) {
    spdlog::error("{}: {}", trouble_, e.what());
    return kAfterTrouble;
  }
}

Errands::Errands(bool threads)
    : threads_(threads), loop_("errands", "an errand failed", threads, [this] { return work(); }) {
  loop_.start();
}

bool Errands::run(std::function<void()> errand, core::Millis patience) {
  if (!threads_) {
    errand();
    return true;
  }
  Errand one{std::move(errand), {}};
  auto done = one.done.get_future();
  {
    std::lock_guard lock(mutex_);
    if (waiting_.size() >= kMostWaiting) return false;
    waiting_.push_back(std::move(one));
  }
  loop_.wake();
  return done.wait_for(patience) == std::future_status::ready && done.get();
}

// One errand a step.
std::optional<core::Millis> Errands::work() {
  Errand oldest;
  {
    std::lock_guard lock(mutex_);
    if (waiting_.empty()) return std::nullopt;
    oldest = std::move(waiting_.front());
    waiting_.pop_front();
  }
  try {
    oldest.body();
  } catch (...) {
    oldest.done.set_value(false);
    throw;  // for the log of the loop
  }
  oldest.done.set_value(true);
  return core::Millis(0);
}

}  // namespace common
