#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace rpc {

/// A fixed number of threads and a bounded queue. Thread-safe.
class Pool {
 public:
  using Task = std::function<void()>;  // must not throw

  Pool(int threads, std::size_t max_queued);
  /// Runs the queued tasks, then ends the threads.
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// Returns false if the queue is full. Then `task` never runs.
  [[nodiscard]] bool post(Task task);

 private:
  void work();

  const std::size_t max_queued_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> queue_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace rpc
