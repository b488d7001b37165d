#include "controller/http/api.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <ranges>
#include <sstream>
#include <vector>

#include "base/words.h"
#include "controller/logs/log_tail.h"
#include "controller/service/controller.h"
#include "spec/jobfile/json_request.h"

namespace http {

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

namespace {

using boost::beast::http::verb;
using jobfile::Finding;
using nlohmann::ordered_json;
namespace v1 = muster::v1;

/// The most rows of one answer. The next request goes on after the last row.
constexpr std::uint32_t kMaxJobRows = 500;
constexpr std::uint32_t kMaxEventRows = 1000;
constexpr std::uint32_t kMaxMetricRows = 5000;
/// The largest value of `points`.
constexpr std::uint32_t kMaxCurvePoints = 5000;
constexpr std::uint32_t kMaxRanks = 500;
/// The largest value of `tail`, in lines.
constexpr std::uint32_t kMaxTailLines = 10000;

constexpr std::size_t kMaxSweepName = 64;
constexpr std::uint32_t kUsualJobRows = 100;
constexpr std::uint64_t kFarthestOffset = std::numeric_limits<std::int64_t>::max();

/// Adds the jobs of "7,9,12". Returns how many there are.
std::uint32_t add_ids(const std::string& text, v1::ListRequest& wanted) {
  std::stringstream ids(text);
  for (std::string id; std::getline(ids, id, ',');) {
    const auto value = base::whole_number<core::JobId>(id);
    if (!value || *value <= 0)
      throw BadParameter{"id: '" + id.substr(0, 80) + "' is not a job's number", "write id=7,9,12"};
    if (wanted.job_ids_size() == static_cast<int>(kMaxJobRows))
      throw BadParameter{"id: more than " + std::to_string(kMaxJobRows) + " jobs", "ask for them in parts"};
    wanted.add_job_ids(*value);
  }
  return static_cast<std::uint32_t>(wanted.job_ids_size());
}

Response list_jobs(const Call& call) {
  const auto& request = call.request;
  v1::ListRequest wanted;
  std::stringstream states(request.parameter("state"));
  for (std::string state; std::getline(states, state, ',');) {
    if (!core::job_state_from_string(state))
      throw BadParameter{"there is no state '" + state.substr(0, 80) + "'",
                         "use pending, queued, running, stopping, waiting, succeeded, failed or cancelled"};
    if (wanted.states_size() == static_cast<int>(core::kAllJobStates.size()))
      throw BadParameter{"more states than there are", "name each state once"};
    wanted.add_states(state);
  }
  const auto ids = add_ids(request.parameter("id"), wanted);
  wanted.set_limit(number(request, "limit", std::max(kUsualJobRows, ids), kMaxJobRows));
  wanted.set_before_id(number<core::JobId>(request, "before", 0));
  wanted.set_sweep(request.parameter("sweep").substr(0, kMaxSweepName));
  return as_json(proto::to_json(call.controller.list(wanted)));
}

/// The curves of a job; pages.h describes the answer.
Response curves(service::Controller& controller, core::JobId job, const Request& request) {
  store::ThinRequest wanted{.job = job};
  wanted.points = number<std::uint32_t>(request, "points", 0, kMaxCurvePoints);
  wanted.from = number(request, "from_step", wanted.from);
  wanted.to = number(request, "to_step", wanted.to);
  if (!request.parameter("after_attempt").empty()) {
    wanted.after_attempt = number<core::AttemptNumber>(request, "after_attempt", 0);
    wanted.after_step = number<core::Step>(request, "after_step", 0);
  }
  const auto& spacing = request.parameter("spacing");
  if (!spacing.empty() && spacing != "log" && spacing != "linear")
    throw BadParameter{"there is no spacing '" + spacing.substr(0, 80) + "'", "use linear or log"};
  wanted.logarithmic = spacing == "log";
  return as_json(to_json(controller.thinned(wanted)));
}

Response metrics(service::Controller& controller, const v1::Job& job, const Request& request) {
  if (!request.parameter("points").empty()) return curves(controller, job.id(), request);
  const auto limit = number(request, "limit", kMaxMetricRows, kMaxMetricRows);
  // Without after_attempt the answer begins with the first step.
  const bool from_start = request.parameter("after_attempt").empty();
  const auto rows = controller.metrics(job.id(), number<core::AttemptNumber>(request, "attempt", 0),
                                       number<core::AttemptNumber>(request, "after_attempt", 0),
                                       from_start ? -1 : number<core::Step>(request, "after_step", 0), limit);
  return rows_page("metrics", rows, limit);
}

Response events(service::Controller& controller, const v1::Job& job, const Request& request) {
  const auto limit = number(request, "limit", kMaxEventRows, kMaxEventRows);
  const auto after = number<std::int64_t>(request, "after_id", 0);
  return rows_page("events", controller.events(job.id(), after, limit), limit);
}

/// The length of the text without a UTF-8 character that is cut off at its end. The log will have its other bytes
/// later.
std::size_t whole_characters(std::string_view text) {
  const std::size_t most = std::min<std::size_t>(text.size(), 3);
  for (std::size_t back = 1; back <= most; ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    const std::size_t wanted = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return wanted > back ? text.size() - back : text.size();
  }
  return text.size();
}

/// An unfinished last line is sent too. A progress bar is one line for hours.
Response logs(service::Controller& controller, const v1::Job& job, const Request& request) {
  const core::AttemptNumber newest = job.attempts_size() == 0 ? 0 : job.attempts().rbegin()->number();
  const auto attempt = number(request, "attempt", newest);
  const auto rank = number<core::RankNumber>(request, "rank", 0);
  const std::string path = attempt == 0 ? std::string() : controller.log_path(job.id(), attempt, rank);
  ordered_json out = {{"attempt", attempt}, {"rank", rank},    {"text", ""},
                      {"next_offset", 0},   {"exists", false}, {"cut", false}};
  if (path.empty()) return as_json(out);
  bool finished = false;
  for (const auto& a : job.attempts()) finished |= a.number() == attempt && a.state() == "ended";
  const auto put = [&](std::string text, std::uint64_t end) {
    const auto size = finished ? text.size() : whole_characters(text);
    out["next_offset"] = end - (text.size() - size);
    text.resize(size);
    out["text"] = std::move(text);
  };
  if (request.parameter("offset").empty()) {
    const auto tail = ::logs::read_last_lines(path, number<std::uint64_t>(request, "tail", 1000, kMaxTailLines),
                                              ::logs::kTailBytes, true);
    put(tail.text, tail.offset);
    out["exists"] = tail.exists;
    out["cut"] = tail.cut;
  } else {
    const auto piece = ::logs::read_from(path, number<std::uint64_t>(request, "offset", 0, kFarthestOffset),
                                         ::logs::kChunkBytes, true);
    put(piece.text, piece.next_offset);
    out["exists"] = piece.exists;
  }
  return as_json(out);
}

/// The answer is small for any number of ranks, so a page can ask every second.
Response ranks(service::Controller&, const v1::Job& job, const Request& request) {
  constexpr std::size_t kLongestState = 16;
  return as_json(rank_page(
      job, {number<std::uint32_t>(request, "from", 0), number<std::uint32_t>(request, "limit", 100, kMaxRanks),
            request.parameter("show").substr(0, kLongestState)}));
}

/// `ranks=0` leaves out the ranks. Thousands of ranks would be most of the answer.
Response one_job(service::Controller&, const v1::Job& job, const Request& request) {
  auto shown = job;
  if (number<std::uint32_t>(request, "ranks", 1, 1) == 0) shown.clear_ranks();
  return as_json(proto::to_json(shown));
}

/// Answers with a page of the job, which may be none.
template <Response (*page)(service::Controller&, const v1::Job&, const Request&)>
Response of_job(const Call& call) {
  const auto job = call.controller.get(call.job);
  return job.ok() ? page(call.controller, job.value(), call.request) : refusal(job.refusal());
}

/// Who asks, where the body does not say.
constexpr const char* kUsualUser = "dashboard";

/// The body of a change. Only `user` and these members may be in it.
ordered_json change_of(const Call& call, std::initializer_list<std::string_view> more = {}) {
  auto body = body_of(call.request);
  for (const auto& [name, value] : body.items()) {
    if (name != "user" && std::ranges::find(more, name) == more.end())
      throw BadParameter{"there is no member '" + name.substr(0, 80) + "'",
                         "docs/api.md lists the members of the body"};
  }
  auto& user = body["user"];
  if (user.is_null()) user = kUsualUser;
  if (!user.is_string()) throw BadParameter{"user is not a text", "send \"user\": \"ben\", or leave it out"};
  return body;
}

template <common::Outcome<v1::Job> (service::Controller::*change)(core::JobId, const std::string& user)>
Response change_job(const Call& call) {
  return outcome((call.controller.*change)(call.job, change_of(call)["user"]));
}

template <v1::SweepChange change>
Response change_sweep(const Call& call) {
  v1::ChangeSweepRequest request;
  request.set_sweep(call.sweep);
  request.set_user(change_of(call)["user"].get<std::string>());
  request.set_change(change);
  return outcome(call.controller.change_sweep(request));
}

Response limit_job(const Call& call) {
  const auto body = change_of(call, {"time_limit_ms"});
  const auto limit = body.find("time_limit_ms");
  if (limit == body.end() || !limit->is_number_unsigned() ||
      limit->get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
    throw BadParameter{"time_limit_ms is not a number of milliseconds",
                       "send \"time_limit_ms\": 14400000 for 4 hours, or 0 for no limit"};
  return outcome(call.controller.set_time_limit(call.job, core::Millis(limit->get<std::int64_t>()), body["user"]));
}

// Answered at once; the stacks come within seconds.
Response ask_stacks(const Call& call) {
  v1::StacksRequest request;
  request.set_job_id(call.job);
  request.set_user(change_of(call)["user"].get<std::string>());
  request.set_ask(true);
  return outcome(call.controller.stacks(request));
}

Response remove_job(const Call& call) {
  const auto body = change_of(call, {"dry_run"});
  const auto dry_run = body.find("dry_run");
  if (dry_run != body.end() && !dry_run->is_boolean())
    throw BadParameter{"dry_run is not true or false", "send \"dry_run\": true, or leave it out"};
  v1::RemoveRequest request;
  request.add_job_ids(call.job);
  request.set_user(body["user"].get<std::string>());
  request.set_dry_run(dry_run != body.end() && dry_run->get<bool>());
  const auto answer = call.controller.remove(request);
  if (!answer.ok()) return refusal(answer.refusal());
  if (answer.value().removed_size() > 0) return as_json(proto::to_json(answer.value().removed(0)));
  if (answer.value().refused_size() == 0) return refusal(common::Refusal::no_job(call.job));
  const auto& refused = answer.value().refused(0);
  return refusal(refused.is_gone() ? common::Refusal::not_found(refused.why())
                                   : common::Refusal::wrong_state(refused.why()));
}

constexpr std::uint32_t kUsualStacks = 16, kMostStacks = 256;

/// The ranks from `from` on, at most `limit`, with their texts.
Response job_stacks(const Call& call) {
  v1::StacksRequest wanted;
  wanted.set_job_id(call.job);
  wanted.set_attempt(number<core::AttemptNumber>(call.request, "attempt", 0));
  wanted.set_number(number<std::uint64_t>(call.request, "number", 0));
  const auto from = number<std::uint32_t>(call.request, "from", 0);
  const auto limit = number<std::uint32_t>(call.request, "limit", kUsualStacks, kMostStacks);
  auto found = call.controller.stacks(wanted);
  if (!found.ok()) return refusal(found.refusal());
  auto& view = found.value();
  const auto ranks = static_cast<std::uint32_t>(view.ranks_size());
  const auto begin = std::min(from, ranks);
  auto& all = *view.mutable_ranks();
  all.DeleteSubrange(0, static_cast<int>(begin));
  const auto count = static_cast<int>(std::min(limit, ranks - begin));
  all.DeleteSubrange(count, all.size() - count);
  for (auto& rank : all) {
    rank.set_text(call.controller.stack_text({view.job_id(), view.attempt()}, view.shown().number(), rank.rank()));
  }
  return as_json(proto::to_json(view));
}

/// Who submits, where the body does not say.
constexpr const char* kProgram = "api";

/// 400. `findings` has what `error` says, in parts.
Response refuse_job(const std::vector<Finding>& findings) {
  std::string lines;
  auto list = ordered_json::array();
  for (const auto& finding : findings) {
    lines += (lines.empty() ? "" : "\n") + finding.line;
    list.push_back({{"place", finding.place},
                    {"key", finding.key},
                    {"value", finding.value},
                    {"message", finding.message},
                    {"remedy", finding.remedy}});
  }
  return as_json(
      {{"error", lines}, {"remedy", "correct the job; nothing was submitted"}, {"findings", std::move(list)}}, 400);
}

/// The controller's own findings: a line each.
std::vector<Finding> findings_of(const std::string& text) {
  std::vector<Finding> findings;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    auto finding = jobfile::finding_of("musterd", "", line);
    finding.line = line;
    findings.push_back(std::move(finding));
  }
  return findings;
}

template <typename Answer>
Response answer_of(const common::Outcome<Answer>& answer, const std::string& location) {
  if (!answer.ok() && answer.refusal().kind == common::Refusal::Kind::kInvalid)
    return refuse_job(findings_of(answer.refusal().text));
  auto response = outcome(answer, 201);
  if (answer.ok()) response.set("Location", location);
  return response;
}

std::string or_usual(const std::string& user) {
  return user.empty() ? kProgram : user;
}

Response submit_job(const Call& call) {
  const auto wanted = jobfile::read_job(body_of(call.request));
  if (!wanted.findings.empty()) return refuse_job(wanted.findings);
  v1::SubmitRequest request;
  *request.mutable_spec() = wanted.specs.front();
  request.set_user(or_usual(wanted.user));
  request.set_request_id(wanted.request_id);
  const auto answer = call.controller.submit(request);
  return answer_of(answer, answer.ok() ? "/api/v1/jobs/" + std::to_string(answer.value().job_id()) : "");
}

Response submit_sweep(const Call& call) {
  auto wanted = jobfile::read_sweep(body_of(call.request));
  if (!wanted.findings.empty()) return refuse_job(wanted.findings);
  v1::SubmitSweepRequest request;
  for (auto& spec : wanted.specs) *request.add_specs() = std::move(spec);
  request.set_user(or_usual(wanted.user));
  request.set_request_id(wanted.request_id);
  request.set_parallel(wanted.parallel);
  request.mutable_submitted_env()->insert(wanted.submitted_env.begin(), wanted.submitted_env.end());
  const auto answer = call.controller.submit_sweep(request);
  return answer_of(answer, answer.ok() ? "/api/v1/jobs?sweep=" + answer.value().sweep() : "");
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

constexpr Route kRoutes[] = {
    {"/api/v1/login", [](const Call& call) { return call.access.log_in(call.request); }, verb::post, true},
    {"/api/v1/logout", [](const Call& call) { return call.access.log_out(call.request); }, verb::post, true},
    {"/api/v1/jobs", list_jobs, verb::get, false, false, "id, state, sweep, limit, before"},
    {"/api/v1/jobs", submit_job, verb::post, false, true},
    {"/api/v1/jobs/{id}", of_job<one_job>, verb::get, false, false, "ranks"},
    {"/api/v1/jobs/{id}/metrics", of_job<metrics>, verb::get, false, false,
     "attempt, after_attempt, after_step, limit, points, from_step, to_step, spacing"},
    {"/api/v1/jobs/{id}/events", of_job<events>, verb::get, false, false, "after_id, limit"},
    {"/api/v1/jobs/{id}/logs", of_job<logs>, verb::get, false, false, "attempt, rank, tail, offset"},
    {"/api/v1/jobs/{id}/ranks", of_job<ranks>, verb::get, false, false, "from, limit, show"},
    {"/api/v1/jobs/{id}/stacks", job_stacks, verb::get, false, false, "attempt, number, from, limit"},
    {"/api/v1/jobs/{id}/stacks", ask_stacks, verb::post},
    {"/api/v1/jobs/{id}/why", [](const Call& call) { return outcome(call.controller.why(call.job)); }, verb::get},
    {"/api/v1/jobs/{id}/cancel", change_job<&service::Controller::cancel>, verb::post},
    {"/api/v1/jobs/{id}/requeue", change_job<&service::Controller::requeue>, verb::post},
    {"/api/v1/jobs/{id}/hold", change_job<&service::Controller::hold>, verb::post},
    {"/api/v1/jobs/{id}/release", change_job<&service::Controller::release>, verb::post},
    {"/api/v1/jobs/{id}/limit", limit_job, verb::post},
    {"/api/v1/jobs/{id}/remove", remove_job, verb::post},
    {"/api/v1/sweeps", submit_sweep, verb::post, false, true},
    {"/api/v1/sweeps/{sweep}/cancel", change_sweep<v1::SWEEP_CHANGE_CANCEL>, verb::post},
    {"/api/v1/sweeps/{sweep}/requeue", change_sweep<v1::SWEEP_CHANGE_REQUEUE>, verb::post},
    {"/api/v1/sweeps/{sweep}/hold", change_sweep<v1::SWEEP_CHANGE_HOLD>, verb::post},
    {"/api/v1/sweeps/{sweep}/release", change_sweep<v1::SWEEP_CHANGE_RELEASE>, verb::post},
    {"/api/v1/machine", [](const Call& call) { return as_json(proto::to_json(call.controller.machine())); }, verb::get},
    {"/api/v1/status", [](const Call& call) { return as_json(proto::to_json(call.controller.status())); }, verb::get},
    {"/api/v1/stream", nullptr, verb::get, false, false, "after"},
    {"/api/v1/openapi.json", [](const Call&) { return response_of(std::string(openapi_text())); }, verb::get},
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

/// The names below "/api/v1/jobs/{id}/" or "/api/v1/", in the order of the table: "metrics, events, ... or remove".
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

constexpr std::string_view kApi = "/api/v1/";
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
