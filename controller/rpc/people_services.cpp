#include <algorithm>

#include "muster/v1/admin_service.grpc.pb.h"
#include "muster/v1/job_service.grpc.pb.h"
#include "rpc/services.h"

namespace rpc {
namespace {

namespace v1 = muster::v1;

constexpr std::size_t kMaxRequestId = 64;
constexpr std::size_t kMaxUser = 256;
constexpr std::uint32_t kMaxList = 1000;
constexpr std::uint32_t kEventsAPage = 500;
constexpr std::uint32_t kMetricsAPage = 1000;

grpc::Status too_long(const char* field, std::size_t size, std::size_t most) {
  return failure(grpc::StatusCode::INVALID_ARGUMENT, std::string(field) + " has " + std::to_string(size) +
                                                         " characters; at most " + std::to_string(most) +
                                                         " are allowed");
}

/// The job as bytes, without the ages of heartbeats, which change all the time. A watcher gets the job again when its
/// fingerprint changes.
std::string fingerprint(v1::Job job) {
  job.clear_spec();
  for (auto& rank : *job.mutable_ranks()) rank.clear_last_heartbeat_ms();
  return job.SerializeAsString();
}

/// True once `job` has ended. Everything that a stream will ever send can then be read. Job 0 means all jobs and never
/// ends.
base::Outcome<bool> has_ended(service::Controller& controller, core::JobId job) {
  if (job == 0) return false;
  const auto now = controller.get(job);
  if (!now.ok()) return now.refusal();
  return is_ended_job(now.value().state());
}

/// As has_ended(), and also true for a removed job, whose events can still be read.
base::Outcome<bool> has_ended_or_is_removed(service::Controller& controller, core::JobId job) {
  auto ended = has_ended(controller, job);
  const bool unknown = !ended.ok() && ended.refusal().kind == base::Refusal::Kind::kNotFound;
  if (unknown && !controller.events(job, 0, 1).empty()) return true;
  return ended;
}

using HasEnded = base::Outcome<bool>(service::Controller& controller, core::JobId job);

/// Sends pages until one is empty. With `follow`, then waits for more until the job has ended. `send_page` returns the
/// number of entries that it sent, or nullopt if the client is gone.
grpc::Status send_pages(service::Controller& controller, core::JobId job, bool follow, Follow& life,
                        const std::function<std::optional<std::size_t>()>& send_page,
                        HasEnded* has_ended_now = has_ended) {
  while (true) {
    const auto ended = has_ended_now(controller, job);
    if (!ended.ok()) return failure(ended.refusal());
    for (std::size_t sent = 1; sent > 0;) {
      const auto page = life.alive() ? send_page() : std::nullopt;
      if (!page) return life.status();
      sent = *page;
    }
    if (!follow || ended.value()) return grpc::Status::OK;
    if (!life.next()) return life.status();
  }
}

class JobService final : public v1::JobService::Service {
 public:
  JobService(service::Controller& controller, const Callers& callers, Streams& streams)
      : controller_(controller), callers_(callers), streams_(streams) {}

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

  grpc::Status Watch(grpc::ServerContext* context, const v1::GetRequest* request,
                     grpc::ServerWriter<v1::Job>* writer) override {
    return stream(context, request->job_id(), [&](Follow& life) {
      std::string shown;
      while (true) {
        const auto job = controller_.get(request->job_id());
        if (!job.ok()) return failure(job.refusal());
        auto print = fingerprint(job.value());
        if (print != shown && !writer->Write(job.value())) return life.status();
        if (is_ended_job(job.value().state())) return grpc::Status::OK;
        shown = std::move(print);
        if (!life.next()) return life.status();
      }
    });
  }
  grpc::Status Trace(grpc::ServerContext* context, const v1::TraceRequest* request,
                     grpc::ServerWriter<v1::TraceView>* writer) override {
    return stream(context, request->job_id(), [&](Follow& life) {
      if (request->user().size() > kMaxUser) return too_long("user", request->user().size(), kMaxUser);
      std::string shown;
      while (true) {
        // Asked again and again: the same number is one request.
        const auto now = controller_.trace(*request);
        if (!now.ok()) return failure(now.refusal());
        auto print = now.value().SerializeAsString();
        if (print != shown && !writer->Write(now.value())) return life.status();
        if (!request->follow() || now.value().state() == "over") return grpc::Status::OK;
        shown = std::move(print);
        if (!life.next()) return life.status();
      }
    });
  }
  grpc::Status Events(grpc::ServerContext* context, const v1::EventsRequest* request,
                      grpc::ServerWriter<v1::Event>* writer) override {
    return stream(context, request->job_id(), [&](Follow& life) {
      std::int64_t after = request->after_id();
      return send_pages(
          controller_, request->job_id(), request->follow(), life,
          [&]() -> std::optional<std::size_t> {
            const auto page = controller_.events(request->job_id(), after, kEventsAPage);
            for (const auto& event : page) {
              if (!writer->Write(event)) return std::nullopt;
              after = event.id();
            }
            return page.size();
          },
          has_ended_or_is_removed);
    });
  }
  grpc::Status Metrics(grpc::ServerContext* context, const v1::MetricsRequest* request,
                       grpc::ServerWriter<v1::Metric>* writer) override {
    return stream(context, request->job_id(), [&](Follow& life) {
      if (request->attempt() != 0) {
        const auto job = controller_.get(request->job_id());
        if (!job.ok()) return failure(job.refusal());
        if (const auto status = check_attempt(job.value(), request->attempt()); !status.ok()) return status;
      }
      core::AttemptNumber after_attempt = 0;
      core::Step after_step = 0;
      return send_pages(controller_, request->job_id(), request->follow(), life, [&]() -> std::optional<std::size_t> {
        const auto page =
            controller_.metrics(request->job_id(), request->attempt(), after_attempt, after_step, kMetricsAPage);
        for (const auto& metric : page) {
          if (!writer->Write(metric)) return std::nullopt;
          after_attempt = metric.attempt();
          after_step = metric.step();
        }
        return page.size();
      });
    });
  }
  grpc::Status Logs(grpc::ServerContext* context, const v1::LogsRequest* request,
                    grpc::ServerWriter<v1::LogChunk>* writer) override {
    return stream(context, request->job_id(), [&](Follow& life) {
      return stream_logs(controller_, life, *request, [&](const v1::LogChunk& chunk) { return writer->Write(chunk); });
    });
  }

 private:
  using Change = base::Outcome<v1::Job> (service::Controller::*)(core::JobId, const std::string& user);

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
  /// Checks the token and runs `body` as one of the streams.
  grpc::Status stream(grpc::ServerContext* context, core::JobId job, const std::function<grpc::Status(Follow&)>& body) {
    return callers_.for_people(*context, [&] {
      return streams_.run([&] {
        Follow life(controller_, streams_, *context, job);
        return body(life);
      });
    });
  }

  service::Controller& controller_;
  const Callers& callers_;
  Streams& streams_;
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
                                                Streams& streams) {
  return std::make_unique<JobService>(controller, callers, streams);
}

std::unique_ptr<grpc::Service> make_admin_service(service::Controller& controller, const Callers& callers) {
  return std::make_unique<AdminService>(controller, callers);
}

}  // namespace rpc
