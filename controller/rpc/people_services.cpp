#include <algorithm>

#include "muster/v1/admin_service.grpc.pb.h"
#include "muster/v1/job_service.grpc.pb.h"
#include "rpc/services.h"
#include "rpc/sources.h"

namespace rpc {
namespace {

namespace v1 = muster::v1;

constexpr std::size_t kMaxRequestId = 64;
constexpr std::size_t kMaxUser = 256;
constexpr std::uint32_t kMaxList = 1000;
constexpr std::uint32_t kMetricsAPage = 1000;
constexpr std::size_t kStacksBytesAMessage = std::size_t{512} << 10;
constexpr int kStacksAMessage = 256;

grpc::Status too_long(const char* field, std::size_t size, std::size_t most) {
  return failure(grpc::StatusCode::INVALID_ARGUMENT, std::string(field) + " has " + std::to_string(size) +
                                                         " characters; at most " + std::to_string(most) +
                                                         " are allowed");
}

/// Logs grow without a change of the job, so they are looked at more often.
constexpr core::Millis kLongestRestOfLogs{250};

/// Streams that follow wait without a thread, see Followers.
template <typename Service>
using WithFollowers = v1::JobService::WithCallbackMethod_Watch<
    v1::JobService::WithCallbackMethod_Trace<v1::JobService::WithCallbackMethod_Events<
        v1::JobService::WithCallbackMethod_Metrics<v1::JobService::WithCallbackMethod_Logs<Service>>>>>;

class JobService final : public WithFollowers<v1::JobService::Service> {
 public:
  JobService(service::Controller& controller, const Callers& callers, Streams& streams, Followers& followers)
      : controller_(controller), callers_(callers), streams_(streams), followers_(followers) {}

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
    if (request->user().size() > kMaxUser) {
      return new RefusedFollower<v1::TraceView>(
          first_of(callers_.check_person(*context), too_long("user", request->user().size(), kMaxUser)));
    }
    return follow<v1::TraceView>(*context, {.job = request->job_id(), .follows = request->follow()},
                                 trace_source(controller_, *request));
  }
  grpc::Status Stacks(grpc::ServerContext* context, const v1::StacksRequest* request,
                      grpc::ServerWriter<v1::StacksView>* writer) override {
    return stream(context, request->job_id(), [&](Follow& life) {
      if (request->user().size() > kMaxUser) return too_long("user", request->user().size(), kMaxUser);
      auto wanted = *request;
      while (true) {
        auto view = controller_.stacks(wanted);
        if (!view.ok()) return failure(view.refusal());
        if (!view.value().has_shown() || view.value().shown().over()) return send_stacks(view.value(), life, *writer);
        // What was asked for is waited for, and not asked for again.
        wanted.set_ask(false);
        wanted.set_attempt(view.value().attempt());
        wanted.set_number(view.value().shown().number());
        if (!life.next()) return life.status();
      }
    });
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
  grpc::Status SweepMetrics(grpc::ServerContext* context, const v1::SweepMetricsRequest* request,
                            grpc::ServerWriter<v1::JobMetrics>* writer) override {
    return stream(context, 0, [&](Follow& life) {
      if (request->sweep().empty()) return failure(grpc::StatusCode::INVALID_ARGUMENT, "sweep: want a sweep's name");
      v1::ListRequest wanted;
      wanted.set_sweep(request->sweep());
      wanted.set_with_series(true);
      wanted.set_limit(kMaxList);
      while (true) {
        const auto jobs = controller_.list(wanted);
        for (const auto& job : jobs.jobs()) {
          if (has_reported(job, request->series()) && !send_series(job.id(), request->series(), life, *writer)) {
            return life.status();
          }
        }
        if (jobs.jobs_size() < static_cast<int>(kMaxList)) return grpc::Status::OK;
        wanted.set_before_id(jobs.jobs().rbegin()->id());
      }
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
  static bool has_reported(const v1::Job& job, const std::string& series) {
    return std::ranges::any_of(job.series(), [&](const auto& one) { return one.name() == series; });
  }
  struct Value {
    core::AttemptNumber attempt;
    core::Step step;
    double value;
  };
  static void add_value(v1::JobMetrics& sent, const Value& value, const std::string& series) {
    auto& one = *sent.add_metrics();
    one.set_attempt(value.attempt);
    one.set_step(value.step);
    (*one.mutable_series())[series] = value.value;
  }
  /// Adds what is left of the steps of an attempt before its first row: the lowest, the highest and the last value of
  /// each bucket, so that the best value of all is among them.
  void add_points(core::JobId job, const v1::Metric& first, const std::string& series, v1::JobMetrics& sent) {
    const auto thinned = controller_.thinned({.job = job, .to = first.aged_before_step() - 1});
    for (const auto& curve : thinned.series) {
      if (curve.name != series) continue;
      for (const auto& [attempt, spot, is_last] : curve.points) {
        const bool is_aged = attempt == first.attempt() && spot.step < first.aged_before_step();
        if (is_aged) add_value(sent, {attempt, spot.step, spot.value}, series);
      }
    }
  }
  /// Sends every value of the series of one job, a page a message; of steps whose rows have aged out, the points of its
  /// curve. False: the client is gone, or the server stops.
  bool send_series(core::JobId job, const std::string& series, const Follow& life,
                   grpc::ServerWriter<v1::JobMetrics>& writer) {
    core::AttemptNumber after_attempt = 0;
    core::Step after_step = 0;
    while (life.alive()) {
      const auto page = controller_.metrics(job, 0, after_attempt, after_step, kMetricsAPage);
      v1::JobMetrics sent;
      sent.set_job_id(job);
      for (const auto& metric : page) {
        if (metric.has_aged_before_step()) add_points(job, metric, series, sent);
        const auto value = metric.series().find(series);
        if (value == metric.series().end()) continue;
        add_value(sent, {metric.attempt(), metric.step(), value->second}, series);
      }
      if (sent.metrics_size() > 0 && !writer.Write(sent)) return false;
      if (page.size() < kMetricsAPage) return true;
      after_attempt = page.back().attempt();
      after_step = page.back().step();
    }
    return false;
  }
  /// All but the texts first, then the ranks with their texts, in messages of moderate size.
  grpc::Status send_stacks(v1::StacksView& view, const Follow& life, grpc::ServerWriter<v1::StacksView>& writer) {
    google::protobuf::RepeatedPtrField<v1::RankStack> ranks;
    ranks.Swap(view.mutable_ranks());
    if (!writer.Write(view)) return life.status();
    const core::AttemptKey key{view.job_id(), view.attempt()};
    v1::StacksView part;
    std::size_t bytes = 0;
    for (auto& rank : ranks) {
      if (rank.problem().empty()) rank.set_text(controller_.stack_text(key, view.shown().number(), rank.rank()));
      bytes += rank.text().size() + rank.problem().size();
      part.add_ranks()->Swap(&rank);
      if (bytes < kStacksBytesAMessage && part.ranks_size() < kStacksAMessage) continue;
      if (!life.alive() || !writer.Write(part)) return life.status();
      part.Clear();
      bytes = 0;
    }
    if (part.ranks_size() > 0 && !writer.Write(part)) return life.status();
    return grpc::Status::OK;
  }
  static grpc::Status first_of(grpc::Status first, grpc::Status second) {
    return first.ok() ? std::move(second) : std::move(first);
  }
  /// Checks the token, and begins to tell what `source` says.
  template <typename Message>
  grpc::ServerWriteReactor<Message>* follow(const grpc::CallbackServerContext& context, Rest rest,
                                            std::unique_ptr<Source<Message>> source) {
    const auto status = callers_.check_person(context);
    if (!status.ok()) return new RefusedFollower<Message>(status);
    return followers_.begin(context, rest, std::move(source));
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
                                                Streams& streams, Followers& followers) {
  return std::make_unique<JobService>(controller, callers, streams, followers);
}

std::unique_ptr<grpc::Service> make_admin_service(service::Controller& controller, const Callers& callers) {
  return std::make_unique<AdminService>(controller, callers);
}

}  // namespace rpc
