#include <nlohmann/json.hpp>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "controller/core/job.h"
#include "controller/http/api.h"
#include "controller/http/message.h"
#include "controller/http/routes.h"
#include "controller/logs/log_tail.h"
#include "controller/service/controller.h"
#include "spec/jobfile/json_request.h"

namespace http {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMaxSweepName = 64;
constexpr std::uint32_t kUsualJobRows = 100;
constexpr std::uint64_t kFarthestOffset = std::numeric_limits<std::int64_t>::max();

/// Adds the jobs of "7,9,12". Returns how many there are.
std::uint32_t add_ids(const std::string& text, muster::v1::ListRequest& wanted) {
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
  const auto ids = add_ids(request.parameter("id"), wanted);
  wanted.set_limit(number(request, "limit", std::max(kUsualJobRows, ids), kMaxJobRows));
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

/// `ranks=0` leaves out the ranks. Thousands of ranks would be most of the answer.
Response one_job(service::Controller&, const muster::v1::Job& job, const Request& request) {
  auto shown = job;
  if (number<std::uint32_t>(request, "ranks", 1, 1) == 0) shown.clear_ranks();
  return as_json(proto::to_json(shown));
}

using Page = Response (*)(service::Controller&, const muster::v1::Job&, const Request&);

Response page_of(const Call& call, Page page) {
  const auto job = call.controller.get(call.job);
  return job.ok() ? page(call.controller, job.value(), call.request) : refusal(job.refusal());
}

}  // namespace

Response list_jobs(const Call& call) {
  return jobs(call.controller, call.request);
}
Response whole_job(const Call& call) {
  return page_of(call, one_job);
}
Response job_metrics(const Call& call) {
  return page_of(call, metrics);
}
Response job_events(const Call& call) {
  return page_of(call, events);
}
Response job_logs(const Call& call) {
  return page_of(call, logs);
}
Response job_ranks(const Call& call) {
  return page_of(call, ranks);
}
Response job_why(const Call& call) {
  return outcome(call.controller.why(call.job));
}

namespace {

using nlohmann::ordered_json;

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

using Change = common::Outcome<muster::v1::Job> (service::Controller::*)(core::JobId, const std::string& user);

Response change_job(const Call& call, Change change) {
  return outcome((call.controller.*change)(call.job, change_of(call)["user"]));
}

Response change_sweep(const Call& call, muster::v1::SweepChange change) {
  muster::v1::ChangeSweepRequest request;
  request.set_sweep(call.sweep);
  request.set_user(change_of(call)["user"].get<std::string>());
  request.set_change(change);
  return outcome(call.controller.change_sweep(request));
}

}  // namespace

Response cancel_job(const Call& call) {
  return change_job(call, &service::Controller::cancel);
}
Response requeue_job(const Call& call) {
  return change_job(call, &service::Controller::requeue);
}
Response hold_job(const Call& call) {
  return change_job(call, &service::Controller::hold);
}
Response release_job(const Call& call) {
  return change_job(call, &service::Controller::release);
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
  muster::v1::StacksRequest request;
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
  muster::v1::RemoveRequest request;
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

Response cancel_sweep(const Call& call) {
  return change_sweep(call, muster::v1::SWEEP_CHANGE_CANCEL);
}
Response requeue_sweep(const Call& call) {
  return change_sweep(call, muster::v1::SWEEP_CHANGE_REQUEUE);
}
Response hold_sweep(const Call& call) {
  return change_sweep(call, muster::v1::SWEEP_CHANGE_HOLD);
}
Response release_sweep(const Call& call) {
  return change_sweep(call, muster::v1::SWEEP_CHANGE_RELEASE);
}

namespace {

constexpr std::uint32_t kUsualStacks = 16, kMostStacks = 256;

}  // namespace

/// The ranks from `from` on, at most `limit`, with their texts.
Response job_stacks(const Call& call) {
  muster::v1::StacksRequest wanted;
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

namespace {

using jobfile::Finding;
using nlohmann::ordered_json;

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

}  // namespace

Response submit_job(const Call& call) {
  const auto wanted = jobfile::read_job(body_of(call.request));
  if (!wanted.findings.empty()) return refuse_job(wanted.findings);
  muster::v1::SubmitRequest request;
  *request.mutable_spec() = wanted.specs.front();
  request.set_user(or_usual(wanted.user));
  request.set_request_id(wanted.request_id);
  const auto answer = call.controller.submit(request);
  return answer_of(answer, answer.ok() ? "/api/v1/jobs/" + std::to_string(answer.value().job_id()) : "");
}

Response submit_sweep(const Call& call) {
  auto wanted = jobfile::read_sweep(body_of(call.request));
  if (!wanted.findings.empty()) return refuse_job(wanted.findings);
  muster::v1::SubmitSweepRequest request;
  for (auto& spec : wanted.specs) *request.add_specs() = std::move(spec);
  request.set_user(or_usual(wanted.user));
  request.set_request_id(wanted.request_id);
  request.set_parallel(wanted.parallel);
  request.mutable_submitted_env()->insert(wanted.submitted_env.begin(), wanted.submitted_env.end());
  const auto answer = call.controller.submit_sweep(request);
  return answer_of(answer, answer.ok() ? "/api/v1/jobs?sweep=" + answer.value().sweep() : "");
}

}  // namespace http
