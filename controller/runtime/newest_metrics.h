#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "store/store.h"

namespace runtime {

/// The newest step of a job's rank 0 and the newest value of each of its series. Read from the store once, and kept up
/// to date from what ranks report; remembers kJobs jobs. Thread-safe.
class NewestMetrics {
 public:
  static constexpr std::size_t kJobs = 4096;
  explicit NewestMetrics(store::Store& store) : store_(store) {}

  /// A row that is in the store now. Only rank 0's count.
  void add(const store::MetricRow& row);
  /// The newest step, with the newest value of each series, which may be an earlier step's. nullopt: there is no step.
  /// Throws store::Error.
  std::optional<store::MetricRow> get(core::JobId job);

 private:
  using Position = std::pair<core::AttemptNumber, core::Step>;
  struct Known {
    bool is_read = false;  // from the store; what is older than the first row added is known, too
    std::optional<store::MetricRow> row;
    std::map<std::string, std::pair<Position, double>> values;
  };
  Known& known(core::JobId job);
  static void merge(Known& known, const store::MetricRow& row);
  static void merge(Known& known, const std::string& series, Position at, double value);

  store::Store& store_;
  std::mutex mutex_;
  std::unordered_map<core::JobId, Known> jobs_;
  std::deque<core::JobId> order_;
};

}  // namespace runtime
