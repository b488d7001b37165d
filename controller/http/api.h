#pragma once

#include <string_view>

#include "controller/http/access.h"
#include "controller/http/message.h"
#include "controller/http/pages.h"

namespace http {

/// A file of the built dashboard, compiled into the program.
struct Asset {
  std::string_view path;  // "/app-1A2B3C4D.js"
  std::string_view type;
  std::string_view etag;  // quoted
  std::string_view body;
  bool immutable = false;  // the name changes with the content
};

/// Null: there is no such file. Defined in a generated file; see web/embed.cmake.
const Asset* find_asset(std::string_view path);

/// docs/openapi.json, as this program was built with it.
std::string_view openapi_text();

struct Found;

/// The most rows of one answer. The next request goes on after the last row.
inline constexpr std::uint32_t kMaxJobRows = 500;
inline constexpr std::uint32_t kMaxEventRows = 1000;
inline constexpr std::uint32_t kMaxMetricRows = 5000;
/// The largest value of `points`.
inline constexpr std::uint32_t kMaxCurvePoints = 5000;
inline constexpr std::uint32_t kMaxRanks = 500;
/// The largest value of `tail`, in lines.
inline constexpr std::uint32_t kMaxTailLines = 10000;

/// Answers every request except the event stream. It may wait for the disk, so call it in the pool. Thread-safe.
///
/// Errors are {"error", "remedy"}, with "findings" for a job that was refused: 400 malformed, 401 not logged in, 403
/// from a page of another site, 404, 405, 409 the job's state does not allow it, 421 a foreign host name, 429 a limit
/// is reached, 503 not possible now.
class Api {
 public:
  Api(service::Controller& controller, Access& access, std::shared_ptr<net::Connections> connections)
      : controller_(controller), access_(access), metrics_page_(controller.last_event_id(), std::move(connections)) {}

  Response answer(const Request& request);
  MetricsPage& metrics_page() { return metrics_page_; }

 private:
  Response answer_route(const Found& found, const Request& request);

  service::Controller& controller_;
  Access& access_;
  MetricsPage metrics_page_;
  HealthPage health_page_;
};

}  // namespace http
