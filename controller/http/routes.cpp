#include "http/routes.h"

#include <algorithm>
#include <vector>

#include "http/handlers.h"

namespace http {
namespace {

using boost::beast::http::verb;

constexpr Route kRoutes[] = {
    {"/api/v1/login", verb::post, log_in, true},
    {"/api/v1/logout", verb::post, log_out, true},
    {"/api/v1/jobs", verb::get, list_jobs},
    {"/api/v1/jobs", verb::post, submit_job, false, true},
    {"/api/v1/jobs/{id}", verb::get, whole_job},
    {"/api/v1/jobs/{id}/metrics", verb::get, job_metrics},
    {"/api/v1/jobs/{id}/events", verb::get, job_events},
    {"/api/v1/jobs/{id}/logs", verb::get, job_logs},
    {"/api/v1/jobs/{id}/ranks", verb::get, job_ranks},
    {"/api/v1/jobs/{id}/why", verb::get, job_why},
    {"/api/v1/jobs/{id}/cancel", verb::post, cancel_job},
    {"/api/v1/jobs/{id}/requeue", verb::post, requeue_job},
    {"/api/v1/jobs/{id}/hold", verb::post, hold_job},
    {"/api/v1/jobs/{id}/release", verb::post, release_job},
    {"/api/v1/jobs/{id}/limit", verb::post, limit_job},
    {"/api/v1/jobs/{id}/remove", verb::post, remove_job},
    {"/api/v1/sweeps", verb::post, submit_sweep, false, true},
    {"/api/v1/sweeps/{sweep}/cancel", verb::post, cancel_sweep},
    {"/api/v1/sweeps/{sweep}/requeue", verb::post, requeue_sweep},
    {"/api/v1/sweeps/{sweep}/hold", verb::post, hold_sweep},
    {"/api/v1/sweeps/{sweep}/release", verb::post, release_sweep},
    {"/api/v1/status", verb::get, status},
    {"/api/v1/stream", verb::get, nullptr},
    {"/api/v1/openapi.json", verb::get, openapi},
    {"/healthz", verb::get, health, true},
    {"/metrics", verb::get, scrape},
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

}  // namespace

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
