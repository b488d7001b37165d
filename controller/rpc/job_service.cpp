#include "rpc/job_service.h"

#include <algorithm>

#include "rpc/call.h"
#include "rpc/log_stream.h"

namespace rpc {
namespace {

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
std::string fingerprint(muster::v1::Job job) {
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

}  // namespace

grpc::Status JobService::as_user(grpc::ServerContext* context, const std::string& user,
                                 const std::function<grpc::Status()>& body) {
  return callers_.for_people(*context, [&] {
    if (user.size() > kMaxUser) return too_long("user", user.size(), kMaxUser);
    return body();
  });
}

grpc::Status JobService::Submit(grpc::ServerContext* context, const muster::v1::SubmitRequest* request,
                                muster::v1::SubmitResponse* response) {
  return as_user(context, request->user(), [&] {
    if (request->request_id().size() > kMaxRequestId) {
      return too_long("request_id", request->request_id().size(), kMaxRequestId);
    }
    return answer(controller_.submit(*request), response);
  });
}

grpc::Status JobService::SubmitSweep(grpc::ServerContext* context, const muster::v1::SubmitSweepRequest* request,
                                     muster::v1::SubmitSweepResponse* response) {
  return as_user(context, request->user(), [&] {
    if (request->request_id().size() > kMaxRequestId) {
      return too_long("request_id", request->request_id().size(), kMaxRequestId);
    }
    return answer(controller_.submit_sweep(*request), response);
  });
}

grpc::Status JobService::ChangeSweep(grpc::ServerContext* context, const muster::v1::ChangeSweepRequest* request,
                                     muster::v1::ChangeSweepResponse* response) {
  return as_user(context, request->user(), [&] { return answer(controller_.change_sweep(*request), response); });
}

grpc::Status JobService::List(grpc::ServerContext* context, const muster::v1::ListRequest* request,
                              muster::v1::ListResponse* response) {
  return callers_.for_people(*context, [&] {
    auto bounded = *request;
    bounded.set_limit(std::min(request->limit(), kMaxList));
    *response = controller_.list(bounded);
    return grpc::Status::OK;
  });
}

grpc::Status JobService::Get(grpc::ServerContext* context, const muster::v1::GetRequest* request,
                             muster::v1::Job* response) {
  return callers_.for_people(*context, [&] { return answer(controller_.get(request->job_id()), response); });
}

grpc::Status JobService::GetSpec(grpc::ServerContext* context, const muster::v1::GetRequest* request,
                                 muster::v1::JobSpec* response) {
  return callers_.for_people(*context, [&] { return answer(controller_.spec(request->job_id()), response); });
}

grpc::Status JobService::Cancel(grpc::ServerContext* context, const muster::v1::CancelRequest* request,
                                muster::v1::Job* response) {
  return as_user(context, request->user(),
                 [&] { return answer(controller_.cancel(request->job_id(), request->user()), response); });
}

grpc::Status JobService::Requeue(grpc::ServerContext* context, const muster::v1::RequeueRequest* request,
                                 muster::v1::Job* response) {
  return as_user(context, request->user(),
                 [&] { return answer(controller_.requeue(request->job_id(), request->user()), response); });
}

grpc::Status JobService::Hold(grpc::ServerContext* context, const muster::v1::HoldRequest* request,
                              muster::v1::Job* response) {
  return as_user(context, request->user(),
                 [&] { return answer(controller_.hold(request->job_id(), request->user()), response); });
}

grpc::Status JobService::Release(grpc::ServerContext* context, const muster::v1::HoldRequest* request,
                                 muster::v1::Job* response) {
  return as_user(context, request->user(),
                 [&] { return answer(controller_.release(request->job_id(), request->user()), response); });
}

grpc::Status JobService::SetTimeLimit(grpc::ServerContext* context, const muster::v1::SetTimeLimitRequest* request,
                                      muster::v1::Job* response) {
  return as_user(context, request->user(), [&] {
    const core::Millis limit(request->time_limit_ms());
    return answer(controller_.set_time_limit(request->job_id(), limit, request->user()), response);
  });
}

grpc::Status JobService::Remove(grpc::ServerContext* context, const muster::v1::RemoveRequest* request,
                                muster::v1::RemoveResponse* response) {
  return as_user(context, request->user(), [&] { return answer(controller_.remove(*request), response); });
}

grpc::Status JobService::Why(grpc::ServerContext* context, const muster::v1::GetRequest* request,
                             muster::v1::WhyResponse* response) {
  return callers_.for_people(*context, [&] { return answer(controller_.why(request->job_id()), response); });
}

grpc::Status JobService::PlanScript(grpc::ServerContext* context, const muster::v1::PlanScriptRequest* request,
                                    muster::v1::PlanScriptResponse* response) {
  return as_user(context, request->user(), [&] { return answer(controller_.plan_script(*request), response); });
}

grpc::Status JobService::CheckScript(grpc::ServerContext* context, const muster::v1::PlanScriptRequest* request,
                                     muster::v1::CheckScriptResponse* response) {
  return as_user(context, request->user(), [&] { return answer(controller_.check_script(*request), response); });
}

grpc::Status JobService::stream(grpc::ServerContext* context, core::JobId job,
                                const std::function<grpc::Status(Follow&)>& body) {
  return callers_.for_people(*context, [&] {
    return streams_.run([&] {
      Follow life(controller_, streams_, *context, job);
      return body(life);
    });
  });
}

grpc::Status JobService::Watch(grpc::ServerContext* context, const muster::v1::GetRequest* request,
                               grpc::ServerWriter<muster::v1::Job>* writer) {
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

grpc::Status JobService::Events(grpc::ServerContext* context, const muster::v1::EventsRequest* request,
                                grpc::ServerWriter<muster::v1::Event>* writer) {
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

grpc::Status JobService::Metrics(grpc::ServerContext* context, const muster::v1::MetricsRequest* request,
                                 grpc::ServerWriter<muster::v1::Metric>* writer) {
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

grpc::Status JobService::Logs(grpc::ServerContext* context, const muster::v1::LogsRequest* request,
                              grpc::ServerWriter<muster::v1::LogChunk>* writer) {
  return stream(context, request->job_id(), [&](Follow& life) {
    return stream_logs(controller_, life, *request,
                       [&](const muster::v1::LogChunk& chunk) { return writer->Write(chunk); });
  });
}

}  // namespace rpc
