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

/// The controller as the command line sees it. Proxies from the environment are not used.
class Client {
 public:
  static constexpr std::chrono::seconds kCallLimit{10};

  explicit Client(const Config& config);

  /// Returns once there is a connection; false if the controller cannot be reached now. Waits at most ten seconds.
  bool connect();
  /// The same, as a Failure with the remedy. Reads the token too.
  void must_connect();

  const std::string& address() const { return config_.address.value; }
  muster::v1::JobService::Stub& jobs() { return *jobs_; }
  muster::v1::AdminService::Stub& admin() { return *admin_; }

  /// Gives a call its token.
  void authorize(grpc::ClientContext& context);

  /// One call with its deadline of ten seconds: `method` of `stub`. Any failure is thrown as told by failure().
  template <typename Stub, typename Request, typename Response>
  Response call(Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                const Request& request) {
    Response response;
    const auto status = try_call(stub, method, request, &response);
    if (!status.ok()) throw failure(status);
    return response;
  }
  template <typename Stub, typename Request, typename Response>
  grpc::Status try_call(Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                        const Request& request, Response* response, std::chrono::seconds limit = kCallLimit) {
    grpc::ClientContext context;
    authorize(context);
    context.set_deadline(std::chrono::system_clock::now() + limit);
    return told_in_time((stub.*method)(&context, request, response), limit);
  }

  /// What a failed call means to a person, and the exit code.
  Failure failure(const grpc::Status& status) const;
  /// No connection to be had.
  Failure unreachable() const;
  /// After a failed connect(): something that speaks HTTP listens there, so waiting will not help.
  bool is_wrong_port() const;
  /// The token that is shown. Empty before must_connect().
  const std::string& token() const { return token_; }

 private:
  /// The status, with the limit rather than gRPC's words if it was reached.
  static grpc::Status told_in_time(const grpc::Status& status, std::chrono::seconds limit);

  Config config_;
  std::string token_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<muster::v1::JobService::Stub> jobs_;
  std::unique_ptr<muster::v1::AdminService::Stub> admin_;
};

/// The answer may have been lost on the way: the same call may be made again.
bool is_lost_contact(const grpc::Status& status);
/// The controller could not store it, and has changed nothing: the same call may be made again.
bool is_unchanged(const grpc::Status& status);
/// The controller has more calls at once than it serves; it has not looked at this one.
bool is_overloaded(const grpc::Status& status);

}  // namespace cli
