#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "core/types.h"

namespace runtime {
class Controller;
}

namespace http {

/// Events read for one scrape at most; the next scrape goes on where this one stopped.
inline constexpr std::uint32_t kMaxEventsAScrape = 20000;

/// What /metrics says, in Prometheus' text form. Counters start at the first event of the store, so they go on over a
/// restart of musterd. Thread-safe.
class MetricsPage {
 public:
  std::string text(runtime::Controller& controller);

  std::atomic<std::uint64_t> requests{0};
  std::atomic<std::int64_t> streams{0};

 private:
  std::mutex mutex_;
  std::int64_t read_up_to_ = 0;
  std::map<std::string, std::uint64_t> events_by_type_;
};

}  // namespace http
