#include "controller/http/answers.h"

namespace http {

using nlohmann::ordered_json;

Response as_json(const ordered_json& json, unsigned status) {
  auto response = response_of(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  response.result(status);
  return response;
}

Response refusal(const common::Refusal& refusal) {
  using Kind = common::Refusal::Kind;
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

ordered_json body_of(const Request& request) {
  if (request.body().empty()) return ordered_json::object();
  auto body = ordered_json::parse(request.body(), nullptr, false);
  if (!body.is_object())
    throw BadParameter{"the body is not a JSON object", "send an object in UTF-8; see docs/api.md"};
  return body;
}

}  // namespace http
