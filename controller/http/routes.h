#pragma once

#include <boost/beast/http/verb.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "controller/core/job.h"
#include "controller/http/access.h"
#include "controller/http/message.h"
#include "controller/http/pages.h"

namespace http {

inline constexpr std::string_view kApi = "/api/v1/";

/// The arguments of a handler.
struct Call {
  service::Controller& controller;
  Access& access;
  MetricsPage& metrics_page;
  HealthPage& health_page;
  const Request& request;
  core::JobId job = 0;  // {id} of the path
  std::string sweep;    // {sweep} of the path
};

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

/// Every address of musterd's HTTP server but the dashboard's pages. docs/openapi.json describes each.
std::span<const Route> routes();

/// The routes whose path fits.
struct Found {
  const Route* route = nullptr;  // null: no route, or none with this method
  std::string allowed;           // "GET, POST": the methods of the path; empty: there is no such path
  std::map<std::string_view, std::string_view> parts;  // "id" -> "7"
};
/// HEAD finds the route of GET, but not that of the event stream.
Found find_route(boost::beast::http::verb method, std::string_view path);

/// The names below "/api/v1/jobs/{id}/" or "/api/v1/", in the order of the table: "metrics, events, ... or remove".
std::string names_below(std::string_view path);

struct Call;

// Handlers that answer the routes of routes.cpp. docs/api.md tells the parameters.

// job_pages.cpp
Response list_jobs(const Call& call);
Response whole_job(const Call& call);
Response job_metrics(const Call& call);
Response job_events(const Call& call);
Response job_logs(const Call& call);
Response job_ranks(const Call& call);
Response job_why(const Call& call);

Response job_stacks(const Call& call);

Response cancel_job(const Call& call);
Response requeue_job(const Call& call);
Response hold_job(const Call& call);
Response release_job(const Call& call);
Response limit_job(const Call& call);
Response remove_job(const Call& call);
Response ask_stacks(const Call& call);
Response cancel_sweep(const Call& call);
Response requeue_sweep(const Call& call);
Response hold_sweep(const Call& call);
Response release_sweep(const Call& call);

Response submit_job(const Call& call);
Response submit_sweep(const Call& call);

// api.cpp
Response log_in(const Call& call);
Response log_out(const Call& call);
Response machine(const Call& call);
Response status(const Call& call);
Response openapi(const Call& call);
Response health(const Call& call);
Response scrape(const Call& call);

}  // namespace http
