#pragma once

#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "store/store.h"

namespace runtime {

/// Writes ranks' metrics, those of many heartbeats in one transaction. Thread-safe.
class MetricsWriter {
 public:
  /// Without threads, add() writes in the caller's thread.
  MetricsWriter(store::Store& store, bool threads);
  ~MetricsWriter();
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;

  /// True once the rows are durable; false if they could not be written, or not in time: the rank sends them again,
  /// and rows that were written after all are no harm.
  bool add(std::vector<store::MetricRow> rows);
  /// Empty, or why the newest write failed.
  std::string problem() const;
  void close();

  /// Rows waiting beyond this are refused, so that a slow disk costs memory only up to here (about 20 MB).
  static constexpr std::size_t kRowsLimit = 131072;

 private:
  struct Batch {
    std::vector<store::MetricRow> rows;
    std::promise<bool> promise;
    std::shared_future<bool> done = promise.get_future().share();
  };
  void run();
  bool write(const std::vector<store::MetricRow>& rows);

  store::Store& store_;
  const bool threads_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::shared_ptr<Batch> next_ = std::make_shared<Batch>();
  bool closed_ = false;
  std::string problem_;
  std::thread thread_;
};

}  // namespace runtime
