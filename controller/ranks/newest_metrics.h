#pragma once

#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "store/store.h"

namespace ranks {

/// The newest step of a job's rank 0, and its series with their newest values. Read from the store once, and kept up to
/// date by whoever writes metrics, so that a job that reports can be shown while the disk stands still. Remembers kJobs
/// jobs. Thread-safe.
class NewestMetrics {
 public:
  static constexpr std::size_t kJobs = 4096;
  explicit NewestMetrics(store::Store& store) : store_(store) {}

  /// What has just been written. Reads the store, so only where waiting for the disk harms nobody. Never throws: what
  /// can't be read now is read when somebody asks.
  void add(std::span<const store::MetricRow> rows, std::span<const store::DeclaredSeries> declared);

  /// The newest step; its values are the newest ones of all series, which may be an earlier step's. nullopt: there is
  /// no step. Throws store::Error.
  std::optional<store::MetricRow> get(core::JobId job);
  /// As Store::series(). Throws store::Error.
  std::vector<store::SeriesRow> series(core::JobId job);

 private:
  struct Known {
    std::optional<store::MetricRow> row;
    std::vector<store::SeriesRow> series;
  };
  Known known(core::JobId job);
  Known read(core::JobId job);
  void enter(core::JobId job, Known known);
  void forget(core::JobId job);
  static bool merge(Known& known, const store::MetricRow& row);

  store::Store& store_;
  std::mutex mutex_;
  std::unordered_map<core::JobId, Known> jobs_;
  std::deque<core::JobId> order_;
};

}  // namespace ranks
