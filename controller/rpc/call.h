#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <string>

#include "muster/v1/job.pb.h"
#include "runtime/controller.h"

namespace rpc {

/// A status whose text surely fits into a trailer: gRPC drops the whole answer when it does not.
grpc::Status failure(grpc::StatusCode code, std::string text);
grpc::Status failure(const runtime::Refusal& refusal);

/// The token of `authorization: Bearer <token>`; empty if there is none.
std::string bearer_token(const grpc::ServerContextBase& context);

/// Runs `body`, which may throw: what it throws becomes UNAVAILABLE with its text (the store is full or gone).
grpc::Status guarded(const std::function<grpc::Status()>& body);

/// `guarded`, for people: without their token it is UNAUTHENTICATED and `body` does not run.
grpc::Status for_people(const runtime::Controller& controller, const grpc::ServerContextBase& context,
                        const std::function<grpc::Status()>& body);

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
