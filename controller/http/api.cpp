#include "controller/http/api.h"

#include <nlohmann/json.hpp>

#include <limits>
#include <optional>
#include <stdexcept>

#include "controller/http/message.h"
#include "controller/http/routes.h"
#include "controller/service/controller.h"

namespace http {
namespace {

constexpr std::string_view kOneJob = "/api/v1/jobs/{id}/";

bool is_page(std::string_view path) {
  return path == "/" || path == "/login" || path.starts_with("/jobs/");
}

/// Answers with the file of the path. Every page ("/", "/jobs/7", "/login") is index.html. Any other path is a 404. A
/// browser that asks for an unknown page gets index.html with the 404, and the page says so.
Response serve_asset(const Request& request) {
  const Asset* asset = find_asset(is_page(request.path) ? "/index.html" : request.path);
  const bool lost = asset == nullptr;
  // A person who mistyped an address gets a page that says so, not JSON.
  if (lost && request.header("accept").find("text/html") != std::string::npos) asset = find_asset("/index.html");
  if (asset == nullptr) return refuse(404, "there is nothing at " + request.path, "the dashboard is at /");
  const bool known = !lost && request.header("if-none-match") == asset->etag;
  auto response = response_of(known ? std::string() : std::string(asset->body), asset->type);
  response.result(lost ? 404 : known ? 304 : 200);
  response.set("ETag", asset->etag);
  response.set("Cache-Control", asset->immutable ? "public, max-age=31536000, immutable" : "no-cache");
  return response;
}

Response wrong_method(const std::string& allowed) {
  Response response = refuse(405, "this address does not take that method", "use " + allowed);
  response.set("Allow", allowed);
  return response;
}

Response not_found(std::string_view path) {
  constexpr std::string_view kJobs = "/api/v1/jobs/";
  if (path.starts_with(kJobs) && path.find('/', kJobs.size()) != std::string_view::npos) {
    const auto what = path.substr(path.find('/', kJobs.size()) + 1);
    return refuse(404, "a job has no '" + std::string(what.substr(0, 200)) + "'", "use " + names_below(kOneJob));
  }
  return refuse(404, "the API has no " + std::string(path.substr(0, 200)),
                "use " + names_below(kApi) + "; openapi.json describes them");
}

/// nullopt: no job can have this number.
std::optional<core::JobId> job_of(std::string_view text) {
  const auto id = base::whole_number<std::uint64_t>(text);
  if (!id || *id == 0 || *id > std::numeric_limits<core::JobId>::max()) return std::nullopt;
  return static_cast<core::JobId>(*id);
}

}  // namespace

Response log_in(const Call& call) {
  return call.access.log_in(call.request);
}
Response log_out(const Call& call) {
  return call.access.log_out(call.request);
}
Response machine(const Call& call) {
  return as_json(proto::to_json(call.controller.machine()));
}
Response status(const Call& call) {
  return as_json(proto::to_json(call.controller.status()));
}
Response openapi(const Call&) {
  return response_of(std::string(openapi_text()));
}
Response health(const Call& call) {
  const auto problems = call.health_page.problems(call.controller);
  if (problems.empty()) return as_json({{"ok", true}});
  auto response = as_json({{"ok", false}, {"problems", problems}});
  response.result(503);
  return response;
}
Response scrape(const Call& call) {
  return response_of(call.metrics_page.text(call.controller), "text/plain; version=0.0.4; charset=utf-8");
}

Response Api::answer_route(const Found& found, const Request& request) {
  if (found.route == nullptr || !found.route->is_open) {
    if (auto stranger = access_.refuse_stranger(request)) return *stranger;
  }
  if (found.allowed.empty()) return not_found(request.path);
  if (found.route == nullptr || found.route->answer == nullptr) return wrong_method(found.allowed);
  if (auto unknown = refuse_parameters(*found.route, request)) return *unknown;
  Call call{controller_, access_, metrics_page_, health_page_, request, 0, ""};
  if (const auto id = found.parts.find("id"); id != found.parts.end()) {
    const auto job = job_of(id->second);
    if (!job) return refuse(404, "'" + std::string(id->second) + "' is not a job's number", "the list of jobs is at /");
    call.job = *job;
  }
  if (const auto sweep = found.parts.find("sweep"); sweep != found.parts.end()) call.sweep = sweep->second;
  return found.route->answer(call);
}

Response Api::answer(const Request& request) {
  ++metrics_page_.requests;
  try {
    if (auto foreign = access_.refuse_foreign(request)) return *foreign;
    const auto found = find_route(request.method(), request.path);
    if (!found.allowed.empty() || request.path.starts_with(kApi)) return answer_route(found, request);
    return request.reads() ? serve_asset(request) : wrong_method("GET");
  } catch (const BadParameter& bad) {
    return refuse(400, bad.error, bad.remedy);
  } catch (const std::exception& error) {
    return refuse(500, error.what(), "look into musterd's log");
  }
}

}  // namespace http
