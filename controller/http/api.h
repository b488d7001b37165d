#pragma once

#include "http/access.h"
#include "http/message.h"
#include "http/metrics_page.h"

namespace runtime {
class Controller;
}

namespace http {

/// Most rows of one answer; the next request goes on after the last of them.
inline constexpr std::uint32_t kMaxJobRows = 500;
inline constexpr std::uint32_t kMaxEventRows = 1000;
inline constexpr std::uint32_t kMaxMetricRows = 5000;
/// Most lines that `tail` may ask for.
inline constexpr std::uint32_t kMaxTailLines = 10000;

/// Answers every request but the event stream. May wait for the disk: call it in the pool. Thread-safe.
///
/// Errors are {"error", "remedy"}: 400 malformed, 401 not logged in, 403 from elsewhere, 404, 405, 409 the job's state
/// does not allow it, 421 not this host, 429 a limit, 503 not now.
class Api {
 public:
  Api(runtime::Controller& controller, Access& access) : controller_(controller), access_(access) {}

  Response answer(const Request& request);
  MetricsPage& metrics_page() { return metrics_page_; }

 private:
  Response answer_api(const Request& request);

  runtime::Controller& controller_;
  Access& access_;
  MetricsPage metrics_page_;
};

}  // namespace http
