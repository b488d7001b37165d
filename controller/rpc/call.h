#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <optional>
#include <string>

#include "controller/net/connections.h"
#include "controller/service/controller.h"
#include "muster/v1/job.pb.h"

namespace rpc {

/// A status whose text is cut to fit into a trailer. gRPC drops the whole answer if the text is too long.
grpc::Status failure(grpc::StatusCode code, std::string text);
grpc::Status failure(const common::Refusal& refusal);

/// The token in the metadata `authorization: Bearer <token>`; empty: none.
std::string bearer_token(const grpc::ServerContextBase& context);

/// Says that `token` is not the people's; nullopt: it is.
std::optional<common::Refusal> refuse_person(const service::Controller& controller, const std::string& token);

/// Says that the caller's program is too old for this one, whose oldest wire version is `oldest`; nullopt: it is not,
/// or it told none, as other programs.
std::optional<common::Refusal> refuse_old(const grpc::ServerContextBase& context, int oldest);

/// Runs `body`. An exception, such as a full store, becomes UNAVAILABLE with the exception's text.
grpc::Status guarded(const std::function<grpc::Status()>& body);

/// Checks the tokens of calls, and tells `Connections` the party of each connection. Thread-safe.
class Callers {
 public:
  /// `port`: the port on which the calls arrive.
  Callers(const service::Controller& controller, net::Connections& connections, int port)
      : controller_(controller), connections_(connections), port_(static_cast<std::uint16_t>(port)) {}

  /// UNAUTHENTICATED unless the call shows the people's token, and FAILED_PRECONDITION if the caller's program is too
  /// old. The answer tells the version of the wire: see [Note: neighbouring versions].
  grpc::Status check_person(grpc::ServerContextBase& context) const;
  /// Runs `body` as guarded() does, after check_person().
  grpc::Status for_people(grpc::ServerContextBase& context, const std::function<grpc::Status()>& body) const {
    auto status = check_person(context);
    return status.ok() ? guarded(body) : status;
  }
  /// Notes that the connection is a rank's, if the token is right, and returns whether it is. The controller decides
  /// whether the call is allowed.
  bool note_rank(const grpc::ServerContextBase& context, const core::AttemptKey& attempt) const;

 private:
  const service::Controller& controller_;
  net::Connections& connections_;
  const std::uint16_t port_;
};

/// Moves the outcome's value into `into`, or returns its refusal as a status.
template <typename T>
grpc::Status answer(common::Outcome<T> outcome, T* into) {
  if (!outcome.ok()) return failure(outcome.refusal());
  *into = std::move(outcome.value());
  return grpc::Status::OK;
}

/// The job's attempt with this number; null: there is none.
const muster::v1::Attempt* find_attempt(const muster::v1::Job& job, core::AttemptNumber number);
/// Says that the job has no attempt with the number `asked`; nullopt: it has. 0 means no particular attempt.
std::optional<common::Refusal> missing_attempt(const muster::v1::Job& job, core::AttemptNumber asked);

/// True for the states that a job does not leave by itself.
bool is_ended_job(const std::string& state);

}  // namespace rpc
