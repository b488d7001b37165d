#include <algorithm>

#include "controller/rpc/services.h"
#include "controller/rpc/sources.h"
#include "muster/v1/admin_service.grpc.pb.h"
#include "muster/v1/job_service.grpc.pb.h"

namespace rpc {
namespace {

namespace v1 = muster::v1;

constexpr std::size_t kMaxRequestId = 64;
constexpr std::size_t kMaxUser = 256;
constexpr std::uint32_t kMaxList = 1000;

grpc::Status too_long(const char* field, std::size_t size, std::size_t most) {
  return failure(grpc::StatusCode::INVALID_ARGUMENT, std::string(field) + " has " + std::to_string(size) +
                                                         " characters; at most " + std::to_string(most) +
                                                         " are allowed");
}

/// Logs grow without a change of the job, so they are looked at more often.
constexpr core::Millis kLongestRestOfLogs{250};
constexpr core::Millis kLongestRestOfStacks{250};

/// What tells more than one message waits without a thread, see Followers.
template <typename Service>
using WithFollowers = v1::JobService::WithCallbackMethod_Watch<
    v1::JobService::WithCallbackMethod_Trace<v1::JobService::WithCallbackMethod_Events<
        v1::JobService::WithCallbackMethod_Metrics<v1::JobService::WithCallbackMethod_Logs<
            v1::JobService::WithCallbackMethod_Stacks<v1::JobService::WithCallbackMethod_SweepMetrics<Service>>>>>>>;

class JobService final : public WithFollowers<v1::JobService::Service> {
 public:
  JobService(service::Controller& controller, const Callers& callers, Followers& followers)
      : controller_(controller), callers_(callers), followers_(followers) {}

  grpc::Status Submit(grpc::ServerContext* context, const v1::SubmitRequest* request,
                      v1::SubmitResponse* response) override {
    return as_submitter(context, *request, [&] { return answer(controller_.submit(*request), response); });
  }
  grpc::Status SubmitSweep(grpc::ServerContext* context, const v1::SubmitSweepRequest* request,
                           v1::SubmitSweepResponse* response) override {
    return as_submitter(context, *request, [&] { return answer(controller_.submit_sweep(*request), response); });
  }
  grpc::Status ChangeSweep(grpc::ServerContext* context, const v1::ChangeSweepRequest* request,
                           v1::ChangeSweepResponse* response) override {
    return as_user(context, request->user(), [&] { return answer(controller_.change_sweep(*request), response); });
  }
  grpc::Status Remove(grpc::ServerContext* context, const v1::RemoveRequest* request,
                      v1::RemoveResponse* response) override {
    return as_user(context, request->user(), [&] { return answer(controller_.remove(*request), response); });
  }
  grpc::Status PlanScript(grpc::ServerContext* context, const v1::PlanScriptRequest* request,
                          v1::PlanScriptResponse* response) override {
    return as_user(context, request->user(), [&] { return answer(controller_.plan_script(*request), response); });
  }
  grpc::Status CheckScript(grpc::ServerContext* context, const v1::PlanScriptRequest* request,
                           v1::CheckScriptResponse* response) override {
    return as_user(context, request->user(), [&] { return answer(controller_.check_script(*request), response); });
  }
  grpc::Status Cancel(grpc::ServerContext* context, const v1::CancelRequest* request, v1::Job* response) override {
    return change(context, *request, &service::Controller::cancel, response);
  }
  grpc::Status Requeue(grpc::ServerContext* context, const v1::RequeueRequest* request, v1::Job* response) override {
    return change(context, *request, &service::Controller::requeue, response);
  }
  grpc::Status Hold(grpc::ServerContext* context, const v1::HoldRequest* request, v1::Job* response) override {
    return change(context, *request, &service::Controller::hold, response);
  }
  grpc::Status Release(grpc::ServerContext* context, const v1::HoldRequest* request, v1::Job* response) override {
    return change(context, *request, &service::Controller::release, response);
  }
  grpc::Status SetTimeLimit(grpc::ServerContext* context, const v1::SetTimeLimitRequest* request,
                            v1::Job* response) override {
    return as_user(context, request->user(), [&] {
      const core::Millis limit(request->time_limit_ms());
      return answer(controller_.set_time_limit(request->job_id(), limit, request->user()), response);
    });
  }
  grpc::Status List(grpc::ServerContext* context, const v1::ListRequest* request, v1::ListResponse* response) override {
    return callers_.for_people(*context, [&] {
      auto bounded = *request;
      bounded.set_limit(std::min(request->limit(), kMaxList));
      *response = controller_.list(bounded);
      return grpc::Status::OK;
    });
  }
  grpc::Status Get(grpc::ServerContext* context, const v1::GetRequest* request, v1::Job* response) override {
    return callers_.for_people(*context, [&] { return answer(controller_.get(request->job_id()), response); });
  }
  grpc::Status GetSpec(grpc::ServerContext* context, const v1::GetRequest* request, v1::JobSpec* response) override {
    return callers_.for_people(*context, [&] { return answer(controller_.spec(request->job_id()), response); });
  }
  grpc::Status Why(grpc::ServerContext* context, const v1::GetRequest* request, v1::WhyResponse* response) override {
    return callers_.for_people(*context, [&] { return answer(controller_.why(request->job_id()), response); });
  }

  grpc::ServerWriteReactor<v1::Job>* Watch(grpc::CallbackServerContext* context,
                                           const v1::GetRequest* request) override {
    return follow<v1::Job>(*context, {.job = request->job_id()}, watch_source(controller_, *request));
  }
  grpc::ServerWriteReactor<v1::TraceView>* Trace(grpc::CallbackServerContext* context,
                                                 const v1::TraceRequest* request) override {
    return follow_as<v1::TraceView>(*context, request->user(), {.job = request->job_id(), .follows = request->follow()},
                                    trace_source(controller_, *request));
  }
  grpc::ServerWriteReactor<v1::StacksView>* Stacks(grpc::CallbackServerContext* context,
                                                   const v1::StacksRequest* request) override {
    const Rest rest{.job = request->job_id(), .longest = kLongestRestOfStacks, .follows = false};
    return follow_as<v1::StacksView>(*context, request->user(), rest, stacks_source(controller_, *request));
  }
  grpc::ServerWriteReactor<v1::Event>* Events(grpc::CallbackServerContext* context,
                                              const v1::EventsRequest* request) override {
    return follow<v1::Event>(*context, {.job = request->job_id(), .follows = request->follow()},
                             events_source(controller_, *request));
  }
  grpc::ServerWriteReactor<v1::Metric>* Metrics(grpc::CallbackServerContext* context,
                                                const v1::MetricsRequest* request) override {
    return follow<v1::Metric>(*context, {.job = request->job_id(), .follows = request->follow()},
                              metrics_source(controller_, *request));
  }
  grpc::ServerWriteReactor<v1::LogChunk>* Logs(grpc::CallbackServerContext* context,
                                               const v1::LogsRequest* request) override {
    const Rest rest{.job = request->job_id(), .longest = kLongestRestOfLogs, .follows = request->follow()};
    return follow<v1::LogChunk>(*context, rest, logs_source(controller_, *request));
  }
  grpc::ServerWriteReactor<v1::JobMetrics>* SweepMetrics(grpc::CallbackServerContext* context,
                                                         const v1::SweepMetricsRequest* request) override {
    return follow<v1::JobMetrics>(*context, {.follows = false}, sweep_metrics_source(controller_, *request));
  }

 private:
  using Change = common::Outcome<v1::Job> (service::Controller::*)(core::JobId, const std::string& user);

  /// Checks the token and the length of the user's name.
  grpc::Status as_user(grpc::ServerContext* context, const std::string& user,
                       const std::function<grpc::Status()>& body) {
    return callers_.for_people(*context, [&] {
      if (user.size() > kMaxUser) return too_long("user", user.size(), kMaxUser);
      return body();
    });
  }
  /// As as_user(), and checks the length of the request's id.
  template <typename Request>
  grpc::Status as_submitter(grpc::ServerContext* context, const Request& request,
                            const std::function<grpc::Status()>& body) {
    return as_user(context, request.user(), [&] {
      const auto size = request.request_id().size();
      return size > kMaxRequestId ? too_long("request_id", size, kMaxRequestId) : body();
    });
  }
  template <typename Request>
  grpc::Status change(grpc::ServerContext* context, const Request& request, Change how, v1::Job* response) {
    return as_user(context, request.user(),
                   [&] { return answer((controller_.*how)(request.job_id(), request.user()), response); });
  }
  static grpc::Status first_of(grpc::Status first, grpc::Status second) {
    return first.ok() ? std::move(second) : std::move(first);
  }
  /// Checks the token, and begins to tell what `source` says.
  template <typename Message>
  grpc::ServerWriteReactor<Message>* follow(grpc::CallbackServerContext& context, Rest rest,
                                            std::unique_ptr<Source<Message>> source) {
    const auto status = callers_.check_person(context);
    if (!status.ok()) return new RefusedFollower<Message>(status);
    return followers_.begin(context, rest, std::move(source));
  }
  /// As follow(), and bounds the user's name.
  template <typename Message>
  grpc::ServerWriteReactor<Message>* follow_as(grpc::CallbackServerContext& context, const std::string& user, Rest rest,
                                               std::unique_ptr<Source<Message>> source) {
    if (user.size() <= kMaxUser) return follow(context, rest, std::move(source));
    return new RefusedFollower<Message>(
        first_of(callers_.check_person(context), too_long("user", user.size(), kMaxUser)));
  }

  service::Controller& controller_;
  const Callers& callers_;
  Followers& followers_;
};

class AdminService final : public v1::AdminService::Service {
 public:
  AdminService(service::Controller& controller, const Callers& callers) : controller_(controller), callers_(callers) {}

  grpc::Status Status(grpc::ServerContext* context, const v1::StatusRequest*, v1::StatusResponse* response) override {
    return callers_.for_people(*context, [&] {
      *response = controller_.status();
      return grpc::Status::OK;
    });
  }
  grpc::Status ListPartitions(grpc::ServerContext* context, const v1::ListPartitionsRequest* request,
                              v1::ListPartitionsResponse* response) override {
    return callers_.for_people(*context, [&] { return answer(controller_.list_partitions(*request), response); });
  }
  grpc::Status SetPartition(grpc::ServerContext* context, const v1::SetPartitionRequest* request,
                            v1::PartitionView* response) override {
    return callers_.for_people(*context, [&] { return answer(controller_.set_partition(*request), response); });
  }
  grpc::Status RemovePartition(grpc::ServerContext* context, const v1::RemovePartitionRequest* request,
                               v1::RemovePartitionResponse* response) override {
    return callers_.for_people(*context, [&] { return answer(controller_.remove_partition(*request), response); });
  }
  grpc::Status ListNodes(grpc::ServerContext* context, const v1::ListNodesRequest*,
                         v1::ListNodesResponse* response) override {
    return callers_.for_people(*context, [&] { return answer(controller_.list_nodes(), response); });
  }
  grpc::Status ListAudit(grpc::ServerContext* context, const v1::ListAuditRequest* request,
                         v1::ListAuditResponse* response) override {
    return callers_.for_people(*context, [&] {
      *response = controller_.list_audit(*request);
      return grpc::Status::OK;
    });
  }

 private:
  service::Controller& controller_;
  const Callers& callers_;
};

}  // namespace

std::unique_ptr<grpc::Service> make_job_service(service::Controller& controller, const Callers& callers,
                                                Followers& followers) {
  return std::make_unique<JobService>(controller, callers, followers);
}

std::unique_ptr<grpc::Service> make_admin_service(service::Controller& controller, const Callers& callers) {
  return std::make_unique<AdminService>(controller, callers);
}

}  // namespace rpc
