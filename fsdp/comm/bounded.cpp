#include "fsdp/comm/bounded.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace fsdp {
namespace {

constexpr std::chrono::milliseconds kLook{100};
constexpr std::chrono::seconds kPatienceAfterFailure{1};

/// The state of threads that may outlive those who wait for them.
struct Running {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<bool> ended;
  std::exception_ptr failure;

  bool all_ended() const {
    return std::ranges::all_of(ended, [](bool one) { return one; });
  }
};

/// Joins the threads that have ended, and leaves the others alone.
class Threads {
 public:
  explicit Threads(std::shared_ptr<Running> running) : running_(std::move(running)) {}
  ~Threads() {
    std::unique_lock<std::mutex> lock(running_->mutex);
    const std::vector<bool> ended = running_->ended;
    lock.unlock();
    for (std::size_t i = 0; i < threads_.size(); ++i) ended[i] ? threads_[i].join() : threads_[i].detach();
  }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  void start(std::function<void()> work) {
    threads_.emplace_back([running = running_, number = threads_.size(), work = std::move(work)]() mutable {
      std::exception_ptr failure;
      try {
        work();
      } catch (...) {
        failure = std::current_exception();
      }
      work = nullptr;  // what it owns goes before its end is told
      const std::lock_guard<std::mutex> lock(running->mutex);
      running->ended[number] = true;
      if (failure && !running->failure) running->failure = failure;
      running->changed.notify_all();
    });
  }

 private:
  std::shared_ptr<Running> running_;
  std::vector<std::thread> threads_;
};

}  // namespace

bool run_for_at_most(std::chrono::milliseconds limit, std::function<void()> work) {
  const auto running = std::make_shared<Running>();
  running->ended.resize(1);
  Threads threads(running);
  threads.start(std::move(work));
  std::unique_lock<std::mutex> lock(running->mutex);
  if (!running->changed.wait_for(lock, limit, [&] { return running->all_ended(); })) return false;
  if (running->failure) std::rethrow_exception(running->failure);
  return true;
}

void run_together(std::vector<NamedWork> works, const TogetherOptions& options) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + options.limit;
  const auto running = std::make_shared<Running>();
  running->ended.resize(works.size());
  Threads threads(running);
  for (NamedWork& one : works) threads.start(std::move(one.work));

  std::unique_lock<std::mutex> lock(running->mutex);
  const auto is_over = [&] { return running->all_ended() || running->failure; };
  std::exception_ptr hopeless;
  bool is_late = false;
  while (!hopeless && !is_late &&
         !running->changed.wait_until(lock, std::min(deadline, Clock::now() + kLook), is_over)) {
    lock.unlock();
    try {
      if (options.check) options.check();
    } catch (...) {
      hopeless = std::current_exception();
    }
    lock.lock();
    is_late = Clock::now() >= deadline && !is_over();
  }
  if (!hopeless && !is_late && !running->failure) return;
  std::string late;
  for (std::size_t i = 0; i < works.size(); ++i) {
    if (running->ended[i]) continue;
    const std::string why = is_late && works[i].why_late ? works[i].why_late() : "";
    late += (late.empty() ? "" : "; ") + works[i].name + (why.empty() ? "" : ": " + why);
  }
  lock.unlock();
  if (options.give_up) options.give_up();
  lock.lock();
  running->changed.wait_for(lock, kPatienceAfterFailure, [&] { return running->all_ended(); });
  if (hopeless) std::rethrow_exception(hopeless);
  TORCH_CHECK(!is_late, "not ready after ", options.limit.count(), " ms: ", late);
  std::rethrow_exception(running->failure);
}

}  // namespace fsdp
