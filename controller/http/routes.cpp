#include "controller/http/routes.h"

#include <algorithm>
#include <ranges>
#include <vector>

#include "base/words.h"

namespace http {
namespace {

using boost::beast::http::verb;

constexpr Route kRoutes[] = {
    {"/api/v1/login", log_in, verb::post, true},
    {"/api/v1/logout", log_out, verb::post, true},
    {"/api/v1/jobs", list_jobs, verb::get, false, false, "id, state, sweep, limit, before"},
    {"/api/v1/jobs", submit_job, verb::post, false, true},
    {"/api/v1/jobs/{id}", whole_job, verb::get, false, false, "ranks"},
    {"/api/v1/jobs/{id}/metrics", job_metrics, verb::get, false, false,
     "attempt, after_attempt, after_step, limit, points, from_step, to_step, spacing"},
    {"/api/v1/jobs/{id}/events", job_events, verb::get, false, false, "after_id, limit"},
    {"/api/v1/jobs/{id}/logs", job_logs, verb::get, false, false, "attempt, rank, tail, offset"},
    {"/api/v1/jobs/{id}/ranks", job_ranks, verb::get, false, false, "from, limit, show"},
    {"/api/v1/jobs/{id}/stacks", job_stacks, verb::get, false, false, "attempt, number, from, limit"},
    {"/api/v1/jobs/{id}/stacks", ask_stacks, verb::post},
    {"/api/v1/jobs/{id}/why", job_why, verb::get},
    {"/api/v1/jobs/{id}/cancel", cancel_job, verb::post},
    {"/api/v1/jobs/{id}/requeue", requeue_job, verb::post},
    {"/api/v1/jobs/{id}/hold", hold_job, verb::post},
    {"/api/v1/jobs/{id}/release", release_job, verb::post},
    {"/api/v1/jobs/{id}/limit", limit_job, verb::post},
    {"/api/v1/jobs/{id}/remove", remove_job, verb::post},
    {"/api/v1/sweeps", submit_sweep, verb::post, false, true},
    {"/api/v1/sweeps/{sweep}/cancel", cancel_sweep, verb::post},
    {"/api/v1/sweeps/{sweep}/requeue", requeue_sweep, verb::post},
    {"/api/v1/sweeps/{sweep}/hold", hold_sweep, verb::post},
    {"/api/v1/sweeps/{sweep}/release", release_sweep, verb::post},
    {"/api/v1/machine", machine, verb::get},
    {"/api/v1/status", status, verb::get},
    {"/api/v1/stream", nullptr, verb::get, false, false, "after"},
    {"/api/v1/openapi.json", openapi, verb::get},
    {"/healthz", health, verb::get, true},
    {"/metrics", scrape, verb::get},
};

std::string_view name_of(verb method) {
  const auto name = to_string(method);
  return {name.data(), name.size()};
}

/// True if the path fits the route's. Fills in the parts of the path.
bool fits(std::string_view wanted, std::string_view path, std::map<std::string_view, std::string_view>& parts) {
  parts.clear();
  while (true) {
    const auto one = wanted.substr(0, wanted.find('/')), other = path.substr(0, path.find('/'));
    if (one.starts_with('{')) {
      if (other.empty()) return false;
      parts[one.substr(1, one.size() - 2)] = other;
    } else if (one != other) {
      return false;
    }
    const bool is_last = one.size() == wanted.size();
    if (is_last || other.size() == path.size()) return is_last && other.size() == path.size();
    wanted.remove_prefix(one.size() + 1);
    path.remove_prefix(other.size() + 1);
  }
}

/// The names of "id, state".
std::vector<std::string> names_of(std::string_view list) {
  std::vector<std::string> names;
  for (const auto part : std::views::split(list, std::string_view(", "))) names.emplace_back(part.begin(), part.end());
  return names;
}

}  // namespace

std::optional<Response> refuse_parameters(const Route& route, const Request& request) {
  if (request.query.empty()) return std::nullopt;
  const auto names = names_of(route.parameters);
  for (const auto& [name, value] : request.query) {
    if (std::ranges::find(names, name) != names.end()) continue;
    const auto close = base::nearest(name, names);
    return refuse(400, "this address has no parameter " + name.substr(0, 80),
                  !close.empty()             ? "did you mean " + close + "?"
                  : route.parameters.empty() ? "leave it out: there are none"
                                             : "use " + std::string(route.parameters));
  }
  if (request.repeated.empty()) return std::nullopt;
  return refuse(400, "the parameter " + request.repeated + " is there twice", "give it once");
}

std::span<const Route> routes() {
  return kRoutes;
}

Found find_route(verb method, std::string_view path) {
  Found found;
  std::map<std::string_view, std::string_view> parts;
  for (const auto& route : kRoutes) {
    if (!fits(route.path, path, parts)) continue;
    found.allowed += (found.allowed.empty() ? "" : ", ") + std::string(name_of(route.method));
    const bool is_head = method == verb::head && route.method == verb::get && route.answer != nullptr;
    if (route.method != method && !is_head) continue;
    found.route = &route;
    found.parts = parts;
  }
  return found;
}

std::string names_below(std::string_view path) {
  std::vector<std::string_view> names;
  for (const auto& route : kRoutes) {
    if (!route.path.starts_with(path)) continue;
    auto name = route.path.substr(path.size());
    name = name.substr(0, name.find('/'));
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  std::string all;
  for (const auto name : names) all += (all.empty() ? "" : name == names.back() ? " or " : ", ") + std::string(name);
  return all;
}

}  // namespace http
