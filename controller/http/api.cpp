#include "http/api.h"

#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "core/job.h"
#include "http/assets.h"
#include "json/proto_json.h"
#include "logs/log_tail.h"
#include "schema/whole_number.h"
#include "service/controller.h"

namespace http {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kApi = "/api/v1/";

/// Thrown for a parameter with a bad value. The answer is then 400.
struct BadParameter {
  std::string error;
  std::string remedy;
};

Response as_json(const ordered_json& json) {
  return response_of(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

Response refusal(const base::Refusal& refusal) {
  using Kind = base::Refusal::Kind;
  switch (refusal.kind) {
    case Kind::kInvalid:
      return refuse(400, refusal.text, "correct the request");
    case Kind::kNotFound:
      return refuse(404, refusal.text, "the list of jobs is at /");
    case Kind::kWrongState:
      return refuse(409, refusal.text, "look at the job again: its state has changed");
    case Kind::kLimit:
      return refuse(429, refusal.text, "try again later");
    case Kind::kUnauthenticated:
      return refuse(401, refusal.text, "log in again");
    case Kind::kUnavailable:
    case Kind::kUnchanged:
      return refuse(503, refusal.text, "try again in a moment");
  }
  return refuse(500, refusal.text, "look into musterd's log");
}

template <typename Message>
Response outcome(const base::Outcome<Message>& message) {
  return message.ok() ? as_json(proto::to_json(message.value())) : refusal(message.refusal());
}

/// A page of rows. `more`: the page is full, so there may be further rows.
template <typename Message>
Response rows_page(const char* name, const std::vector<Message>& rows, std::uint32_t limit) {
  ordered_json out = {{name, ordered_json::array()}, {"more", limit > 0 && rows.size() == limit}};
  for (const auto& row : rows) out[name].push_back(proto::to_json(row));
  return as_json(out);
}

/// The parameter as a number; `otherwise` if it is absent.
template <typename Number>
Number number(const Request& request, const std::string& name, Number otherwise,
              std::uint64_t most = std::numeric_limits<Number>::max()) {
  const std::string& text = request.parameter(name);
  if (text.empty()) return otherwise;
  const auto value = schema::whole_number<std::uint64_t>(text);
  if (!value || *value > most)
    throw BadParameter{name + "=" + text.substr(0, 80) + " is not a number from 0 to " + std::to_string(most),
                       "correct the parameter " + name};
  return static_cast<Number>(*value);
}

constexpr std::size_t kMaxSweepName = 64;
constexpr std::uint64_t kFarthestOffset = std::numeric_limits<std::int64_t>::max();

Response jobs(service::Controller& controller, const Request& request) {
  muster::v1::ListRequest wanted;
  std::stringstream states(request.parameter("state"));
  for (std::string state; std::getline(states, state, ',');) {
    if (!core::job_state_from_string(state))
      throw BadParameter{"there is no state '" + state.substr(0, 80) + "'",
                         "use pending, queued, running, stopping, waiting, succeeded, failed or cancelled"};
    if (wanted.states_size() == static_cast<int>(core::kAllJobStates.size()))
      throw BadParameter{"more states than there are", "name each state once"};
    wanted.add_states(state);
  }
  wanted.set_limit(number<std::uint32_t>(request, "limit", 100, kMaxJobRows));
  wanted.set_before_id(number<core::JobId>(request, "before", 0));
  wanted.set_sweep(request.parameter("sweep").substr(0, kMaxSweepName));
  return as_json(proto::to_json(controller.list(wanted)));
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

Response metrics(service::Controller& controller, const muster::v1::Job& job, const Request& request) {
  if (!request.parameter("points").empty()) return curves(controller, job.id(), request);
  const auto limit = number(request, "limit", kMaxMetricRows, kMaxMetricRows);
  // Without after_attempt the answer begins with the first step.
  const bool from_start = request.parameter("after_attempt").empty();
  const auto rows = controller.metrics(job.id(), number<core::AttemptNumber>(request, "attempt", 0),
                                       number<core::AttemptNumber>(request, "after_attempt", 0),
                                       from_start ? -1 : number<core::Step>(request, "after_step", 0), limit);
  return rows_page("metrics", rows, limit);
}

Response events(service::Controller& controller, const muster::v1::Job& job, const Request& request) {
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
Response logs(service::Controller& controller, const muster::v1::Job& job, const Request& request) {
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
Response ranks(service::Controller&, const muster::v1::Job& job, const Request& request) {
  constexpr std::size_t kLongestState = 16;
  return as_json(rank_page(
      job, {number<std::uint32_t>(request, "from", 0), number<std::uint32_t>(request, "limit", 100, kMaxRanks),
            request.parameter("show").substr(0, kLongestState)}));
}

Response why(service::Controller& controller, const muster::v1::Job& job, const Request&) {
  return outcome(controller.why(job.id()));
}

/// `ranks=0` leaves out the ranks. Thousands of ranks would be most of the answer.
Response whole_job(service::Controller&, const muster::v1::Job& job, const Request& request) {
  auto shown = job;
  if (number<std::uint32_t>(request, "ranks", 1, 1) == 0) shown.clear_ranks();
  return as_json(proto::to_json(shown));
}

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

Response wrong_method(const char* allowed) {
  Response response = refuse(405, "this address does not take that method", std::string("use ") + allowed);
  response.set("Allow", allowed);
  return response;
}

using Page = Response (*)(service::Controller&, const muster::v1::Job&, const Request&);
const std::map<std::string_view, Page> kPages{{"", whole_job}, {"metrics", metrics}, {"events", events},
                                              {"logs", logs},  {"why", why},         {"ranks", ranks}};

using Change = base::Outcome<muster::v1::Job> (service::Controller::*)(core::JobId, const std::string& user);
const std::map<std::string_view, Change> kChanges{{"cancel", &service::Controller::cancel},
                                                  {"requeue", &service::Controller::requeue},
                                                  {"hold", &service::Controller::hold},
                                                  {"release", &service::Controller::release}};

// Answers "jobs/7" and "jobs/7/metrics". `rest` is "7" or "7/metrics".
Response one_job(service::Controller& controller, std::string_view rest, const Request& request) {
  const auto slash = rest.find('/');
  const auto id = schema::whole_number<std::uint64_t>(rest.substr(0, slash));
  if (!id || *id == 0 || *id > std::numeric_limits<core::JobId>::max())
    return refuse(404, "'" + std::string(rest.substr(0, slash)) + "' is not a job's number",
                  "the list of jobs is at /");
  const auto job_id = static_cast<core::JobId>(*id);
  const std::string_view what = slash == std::string_view::npos ? std::string_view() : rest.substr(slash + 1);
  if (const auto change = kChanges.find(what); change != kChanges.end()) {
    if (request.method() != boost::beast::http::verb::post) return wrong_method("POST");
    return outcome((controller.*change->second)(job_id, "dashboard"));
  }
  const auto page = kPages.find(what);
  if (page == kPages.end())
    return refuse(404, "a job has no '" + std::string(what) + "'",
                  "use metrics, events, logs, ranks, why, cancel, requeue, hold or release");
  if (!request.reads()) return wrong_method("GET");
  const auto job = controller.get(job_id);
  return job.ok() ? page->second(controller, job.value(), request) : refusal(job.refusal());
}

}  // namespace

Response Api::answer_api(const Request& request) {
  const std::string_view what = std::string_view(request.path).substr(kApi.size());
  if (what == "login" || what == "logout") {
    if (request.method() != boost::beast::http::verb::post) return wrong_method("POST");
    return what == "login" ? access_.log_in(request) : access_.log_out(request);
  }
  if (auto stranger = access_.refuse_stranger(request)) return *stranger;
  if (what.starts_with("jobs/")) return one_job(controller_, what.substr(5), request);
  if (what != "jobs" && what != "status")
    return refuse(404, "the API has no " + request.path.substr(0, 200), "use jobs, jobs/NUMBER, status or stream");
  if (!request.reads()) return wrong_method("GET");
  return what == "jobs" ? jobs(controller_, request) : as_json(proto::to_json(controller_.status()));
}

Response Api::answer(const Request& request) {
  ++metrics_page_.requests;
  try {
    if (auto foreign = access_.refuse_foreign(request)) return *foreign;
    if (request.path.starts_with(kApi)) return answer_api(request);
    if (!request.reads()) return wrong_method("GET");
    if (request.path == "/healthz") return as_json({{"ok", true}});
    if (request.path != "/metrics") return serve_asset(request);
    if (auto stranger = access_.refuse_stranger(request)) return *stranger;
    return response_of(metrics_page_.text(controller_), "text/plain; version=0.0.4; charset=utf-8");
  } catch (const BadParameter& bad) {
    return refuse(400, bad.error, bad.remedy);
  } catch (const std::exception& error) {
    return refuse(500, error.what(), "look into musterd's log");
  }
}

}  // namespace http
