#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "core/types.h"

namespace service {
class Controller;
}

namespace http {

/// The most events that one scrape reads. The next scrape goes on after them.
inline constexpr std::uint32_t kMaxEventsAScrape = 20000;

/// The answer to /metrics, in Prometheus' text format. Counters of events start at the first event of the store, so
/// they survive a restart of musterd. Thread-safe.
class MetricsPage {
 public:
  std::string text(service::Controller& controller);

  std::atomic<std::uint64_t> requests{0};
  std::atomic<std::int64_t> streams{0};

 private:
  std::mutex mutex_;
  std::int64_t read_up_to_ = 0;
  std::map<std::string, std::uint64_t> events_by_type_;
};

}  // namespace http
