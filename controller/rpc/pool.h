#pragma once

#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <utility>

namespace rpc {

/// A fixed number of threads and a bounded queue. Thread-safe.
class Pool {
 public:
  Pool(std::size_t threads, std::size_t max_queued) : max_queued_(max_queued), threads_(threads) {}
  /// Runs the queued tasks, then ends the threads.
  ~Pool() { threads_.join(); }

  /// Returns false if the queue is full. Then `task` never runs. It must not throw.
  template <typename Task>
  [[nodiscard]] bool post(Task task) {
    if (queued_.fetch_add(1) >= max_queued_) {
      --queued_;
      return false;
    }
    boost::asio::post(threads_, [this, task = std::move(task)]() mutable {
      --queued_;
      task();
    });
    return true;
  }
  /// For timers, which call from the pool's threads.
  auto executor() { return threads_.get_executor(); }

 private:
  const std::size_t max_queued_;
  std::atomic<std::size_t> queued_{0};
  boost::asio::thread_pool threads_;
};

}  // namespace rpc
