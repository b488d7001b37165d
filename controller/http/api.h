#pragma once

#include <boost/beast/http/verb.hpp>

#include <map>
#include <optional>
#include <span>
#include <string>
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

struct Call;

struct Route {
  /// "/api/v1/jobs/{id}/metrics". {id} stands for a job's number, {sweep} for a sweep's name.
  std::string_view path;
  /// Null: the event stream, which the connection serves itself.
  Response (*answer)(const Call&);
  boost::beast::http::verb method;
  /// Nobody needs the token.
  bool is_open = false;
  /// The body may have kMaxSubmissionBytes.
  bool is_large = false;
  /// "id, state": what the query may hold.
  std::string_view parameters = "";
};

/// Refuses a query with a parameter that the route does not have, or with one that is there twice. Without this, a
/// misspelt filter would answer with everything.
std::optional<Response> refuse_parameters(const Route& route, const Request& request);

/// Every address of musterd's HTTP server but the dashboard's pages. docs/openapi.json and docs/api.md tell of each.
std::span<const Route> routes();

/// The routes whose path fits.
struct Found {
  const Route* route = nullptr;  // null: no route, or none with this method
  std::string allowed;           // "GET, POST": the methods of the path; empty: there is no such path
  std::map<std::string_view, std::string_view> parts;  // "id" -> "7"
};
/// HEAD finds the route of GET, but not that of the event stream.
Found find_route(boost::beast::http::verb method, std::string_view path);

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
