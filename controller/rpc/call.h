#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <string>

#include "muster/v1/job.pb.h"
#include "net/connections.h"
#include "service/controller.h"

namespace rpc {

/// A status whose text surely fits into a trailer: gRPC drops the whole answer when it does not.
grpc::Status failure(grpc::StatusCode code, std::string text);
grpc::Status failure(const runtime::Refusal& refusal);

/// The token of `authorization: Bearer <token>`; empty if there is none.
std::string bearer_token(const grpc::ServerContextBase& context);

/// Runs `body`, which may throw: what it throws becomes UNAVAILABLE with its text (the store is full or gone).
grpc::Status guarded(const std::function<grpc::Status()>& body);

/// Who calls: checks tokens, and says whose the connections are on which they were shown. Thread-safe.
class Callers {
 public:
  /// `port`: where the calls come in.
  Callers(const runtime::Controller& controller, net::Connections& connections, int port)
      : controller_(controller), connections_(connections), port_(static_cast<std::uint16_t>(port)) {}

  /// `guarded`, for people: without their token it is UNAUTHENTICATED and `body` does not run.
  grpc::Status for_people(const grpc::ServerContextBase& context, const std::function<grpc::Status()>& body) const;
  /// A rank's call has begun; whether it may ask what it asks is the controller's to say.
  void note_rank(const grpc::ServerContextBase& context, const core::AttemptKey& attempt) const;

 private:
  const runtime::Controller& controller_;
  net::Connections& connections_;
  const std::uint16_t port_;
};

/// Moves the value into `into`, or tells the refusal.
template <typename T>
grpc::Status answer(runtime::Outcome<T> outcome, T* into) {
  if (!outcome.ok()) return failure(outcome.refusal());
  *into = std::move(outcome.value());
  return grpc::Status::OK;
}

/// The job's attempt of that number; null: there is none.
const muster::v1::Attempt* find_attempt(const muster::v1::Job& job, core::AttemptNumber number);
/// NOT_FOUND where an attempt is asked for that the job does not have; 0 asks for none.
grpc::Status check_attempt(const muster::v1::Job& job, core::AttemptNumber asked);

/// True for the states that a job does not leave by itself.
bool is_ended_job(const std::string& state);

}  // namespace rpc
