#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "controller/http/answers.h"
#include "controller/http/handlers.h"
#include "controller/http/routes.h"
#include "controller/service/controller.h"
#include "spec/jobfile/json_request.h"

namespace http {
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
