#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>

#include "cli/config.h"
#include "cli/failure.h"
#include "muster/v1/admin_service.grpc.pb.h"
#include "muster/v1/job_service.grpc.pb.h"

namespace cli {

using JobStub = muster::v1::JobService::Stub;
using AdminStub = muster::v1::AdminService::Stub;

/// The connection of the command line to the controller. It ignores proxies that the environment names.
class Client {
 public:
  static constexpr std::chrono::seconds kCallLimit{10};

  explicit Client(const Config& config);

  /// Connects, and waits at most ten seconds. Returns false if the controller cannot be reached.
  bool connect();
  /// Connects, and reads the token. Throws a Failure with a remedy if that is not possible.
  void must_connect();

  const std::string& address() const { return config_.address.value; }
  JobStub& jobs() { return *jobs_; }

  /// Adds the token to a call.
  void authorize(grpc::ClientContext& context);

  /// Calls `method` with this deadline. Throws failure() if the call fails.
  template <typename Stub, typename Request, typename Response>
  Response call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*), const Request& request,
                std::chrono::seconds limit = kCallLimit) {
    Response response;
    const auto status = try_call(method, request, &response, limit);
    if (!status.ok()) throw failure(status);
    return response;
  }
  template <typename Stub, typename Request, typename Response>
  grpc::Status try_call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                        const Request& request, Response* response, std::chrono::seconds limit = kCallLimit) {
    grpc::ClientContext context;
    authorize(context);
    context.set_deadline(std::chrono::system_clock::now() + limit);
    return told_in_time((stub<Stub>().*method)(&context, request, response), limit);
  }

  /// The message and the exit code for a failed call.
  Failure failure(const grpc::Status& status) const;
  /// The Failure for a controller that cannot be reached.
  Failure unreachable() const;
  /// Call it after a failed connect(). True if an HTTP server listens at the address, so that waiting does not help.
  bool is_wrong_port() const;
  /// The token that calls carry. Empty before must_connect().
  const std::string& token() const { return token_; }

 private:
  /// The status. If the deadline passed, its text tells the limit in place of gRPC's words.
  static grpc::Status told_in_time(const grpc::Status& status, std::chrono::seconds limit);
  template <typename Stub>
  Stub& stub() {
    if constexpr (std::is_same_v<Stub, JobStub>) {
      return *jobs_;
    } else {
      return *admin_;
    }
  }

  Config config_;
  std::string token_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<JobStub> jobs_;
  std::unique_ptr<AdminStub> admin_;
};

/// The request for everything that is asked of one job.
muster::v1::GetRequest of_job(std::int64_t id);

/// True if the connection was lost. The call may have been performed, so the caller may only repeat it if repeating
/// does no harm.
bool is_lost_contact(const grpc::Status& status);
/// True if the controller could not store the change, and has changed nothing. The caller may repeat the call.
bool is_unchanged(const grpc::Status& status);
/// True if the controller refused the call unread, because too many calls are running.
bool is_overloaded(const grpc::Status& status);

}  // namespace cli
