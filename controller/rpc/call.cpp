#include "controller/rpc/call.h"

#include <strings.h>

#include <algorithm>

#include "proto/wire/version.h"

namespace rpc {
namespace {

constexpr std::size_t kMaxStatusText = 2000;

grpc::StatusCode code_of(common::Refusal::Kind kind) {
  using Kind = common::Refusal::Kind;
  switch (kind) {
    case Kind::kInvalid:
      return grpc::StatusCode::INVALID_ARGUMENT;
    case Kind::kNotFound:
      return grpc::StatusCode::NOT_FOUND;
    case Kind::kWrongState:
      return grpc::StatusCode::FAILED_PRECONDITION;
    case Kind::kLimit:
      return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case Kind::kUnavailable:
      return grpc::StatusCode::UNAVAILABLE;
    case Kind::kUnchanged:
      return grpc::StatusCode::ABORTED;
    case Kind::kUnauthenticated:
      return grpc::StatusCode::UNAUTHENTICATED;
  }
  return grpc::StatusCode::INTERNAL;
}

}  // namespace

grpc::Status failure(grpc::StatusCode code, std::string text) {
  if (text.size() > kMaxStatusText) {
    std::size_t end = kMaxStatusText;
    // Do not cut in the middle of a UTF-8 character.
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    text.resize(end);
    text += " ...";
  }
  return {code, text};
}

grpc::Status failure(const common::Refusal& refusal) {
  return failure(code_of(refusal.kind), refusal.text);
}

std::string bearer_token(const grpc::ServerContextBase& context) {
  static constexpr std::size_t kSchemeSize = 7;
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find("authorization");
  if (found == metadata.end()) return "";
  const auto& value = found->second;
  if (value.size() <= kSchemeSize || ::strncasecmp(value.data(), "Bearer ", kSchemeSize) != 0) return "";
  return {value.data() + kSchemeSize, value.size() - kSchemeSize};
}

grpc::Status guarded(const std::function<grpc::Status()>& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    return failure(grpc::StatusCode::UNAVAILABLE, error.what());
  }
}

std::optional<common::Refusal> refuse_person(const service::Controller& controller, const std::string& token) {
  constexpr auto kKind = common::Refusal::Kind::kUnauthenticated;
  if (token.empty()) {
    return common::Refusal{
        kKind, "no token: send `authorization: Bearer <token>` with the token from the controller's token file"};
  }
  if (controller.is_people_token(token)) return std::nullopt;
  return common::Refusal{kKind, "this token is not the controller's: read it again from the controller's token file"};
}

std::optional<common::Refusal> refuse_old(const grpc::ServerContextBase& context, int oldest) {
  const auto version = proto::told_wire_version(context.client_metadata());
  if (!version || *version >= oldest) return std::nullopt;
  return common::Refusal::wrong_state("this muster is too old for musterd: it speaks version " +
                                      std::to_string(*version) + " of the wire, and musterd understands " +
                                      std::to_string(oldest) + " and newer; install the muster of musterd's version");
}

grpc::Status Callers::check_person(grpc::ServerContextBase& context) const {
  context.AddInitialMetadata(proto::kWireVersionKey, std::to_string(proto::kWireVersion));
  auto refusal = refuse_person(controller_, bearer_token(context));
  connections_.know(port_, context.peer(), net::Party::kPerson, net::Connections::Clock::now(),
                    [&] { return !refusal; });
  if (!refusal) refusal = refuse_old(context, proto::kOldestWireVersion);
  return refusal ? failure(*refusal) : grpc::Status::OK;
}

const muster::v1::Attempt* find_attempt(const muster::v1::Job& job, core::AttemptNumber number) {
  const auto found =
      std::ranges::find_if(job.attempts(), [&](const muster::v1::Attempt& a) { return a.number() == number; });
  return found == job.attempts().end() ? nullptr : &*found;
}

std::optional<common::Refusal> missing_attempt(const muster::v1::Job& job, core::AttemptNumber asked) {
  if (asked == 0 || find_attempt(job, asked) != nullptr) return std::nullopt;
  return common::Refusal{common::Refusal::Kind::kNotFound,
                         "job " + std::to_string(job.id()) + " has no attempt " + std::to_string(asked) + "; it has " +
                             std::to_string(job.attempts_size()) + ", see muster show"};
}

bool Callers::note_rank(const grpc::ServerContextBase& context, const core::AttemptKey& attempt) const {
  const bool is_right = controller_.is_rank_token(attempt, bearer_token(context));
  connections_.know(port_, context.peer(), net::Party::kRank, net::Connections::Clock::now(), [=] { return is_right; });
  return is_right;
}

bool is_ended_job(const std::string& state) {
  return state == "succeeded" || state == "failed" || state == "cancelled";
}

}  // namespace rpc
