#include <algorithm>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "controller/http/answers.h"
#include "controller/http/handlers.h"
#include "controller/http/routes.h"
#include "controller/service/controller.h"

namespace http {
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

}  // namespace http
