#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>
#include <vector>

#include "controller/logs/log_tail.h"
#include "controller/rpc/call.h"
#include "controller/rpc/services.h"
#include "muster/v1/admin_service.grpc.pb.h"
#include "muster/v1/job_service.grpc.pb.h"
#include "proto/wire/logs.h"

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

/// A call that tells more than one message waits without a thread, see Followers.
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
  /// Acts as as_user() does, and checks the length of the request's id.
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
  /// Checks the token, and begins to tell what `source` says.
  template <typename Message>
  grpc::ServerWriteReactor<Message>* follow(grpc::CallbackServerContext& context, Rest rest,
                                            std::unique_ptr<Source<Message>> source) {
    const auto status = callers_.check_person(context);
    if (!status.ok()) return new RefusedFollower<Message>(status);
    return followers_.begin(context, rest, std::move(source));
  }
  /// Acts as follow() does, and bounds the user's name.
  template <typename Message>
  grpc::ServerWriteReactor<Message>* follow_as(grpc::CallbackServerContext& context, const std::string& user, Rest rest,
                                               std::unique_ptr<Source<Message>> source) {
    if (user.size() <= kMaxUser) return follow(context, rest, std::move(source));
    const auto status = callers_.check_person(context);
    return new RefusedFollower<Message>(status.ok() ? too_long("user", user.size(), kMaxUser) : status);
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
  grpc::Status Drain(grpc::ServerContext* context, const v1::DrainRequest* request, v1::DrainView* response) override {
    return callers_.for_people(*context, [&] { return answer(controller_.drain(*request), response); });
  }
  grpc::Status Resume(grpc::ServerContext* context, const v1::ResumeRequest* request,
                      v1::DrainView* response) override {
    return callers_.for_people(*context, [&] { return answer(controller_.resume(*request), response); });
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

/// How many chunks of one rank are sent in a row, so that a rank with a long log does not delay the others.
constexpr int kChunksATurn = 16;
constexpr std::uint64_t kNoEnd = std::numeric_limits<std::uint64_t>::max();

/// The log file of one rank.
struct RankLog {
  core::RankNumber rank = 0;
  std::string path;
  std::uint64_t offset = 0;
  std::uint64_t end = kNoEnd;  // where the stream stops, if it does not follow
};

std::int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

std::uint32_t world_size(const v1::Job& job) {
  return std::max(1u, job.ranks_total());
}

const v1::LogPosition* position_of(const v1::LogsRequest& request, core::AttemptNumber attempt, core::RankNumber rank) {
  const auto found = std::ranges::find_if(request.from(), [&](const v1::LogPosition& position) {
    return position.attempt() == attempt && position.rank() == rank;
  });
  return found == request.from().end() ? nullptr : &*found;
}

/// The attempt that a stream begins with; 0: the job has no attempt yet.
core::AttemptNumber first_attempt(const v1::Job& job, const v1::LogsRequest& request) {
  if (request.attempt() != 0 || job.attempts_size() == 0) return request.attempt();
  core::AttemptNumber broken_off = 0;
  for (const auto& position : request.from()) broken_off = std::max(broken_off, position.attempt());
  return find_attempt(job, broken_off) != nullptr ? broken_off : job.attempts().rbegin()->number();
}

/// The logs of one attempt.
class AttemptLogs {
 public:
  AttemptLogs(service::Controller& controller, const v1::Job& job, core::AttemptNumber attempt,
              const v1::LogsRequest& request, bool first)
      : attempt_(attempt) {
    const auto add = [&](core::RankNumber rank) {
      RankLog log{rank,
                  rank == proto::kSchedulerLog ? controller.scheduler_log_path(job.id(), attempt)
                                               : controller.log_path(job.id(), attempt, rank),
                  0, kNoEnd};
      if (const auto* from = position_of(request, attempt, rank)) {
        log.offset = from->offset();
      } else if (first && request.tail_lines() > 0) {
        log.offset = logs::last_lines_offset(log.path, request.tail_lines());
      }
      if (!request.follow()) log.end = logs::last_lines_offset(log.path, 0);
      logs_.push_back(std::move(log));
    };
    if (request.has_rank()) {
      add(request.rank());
    } else {
      for (core::RankNumber rank = 0; rank < world_size(job); ++rank) add(rank);
    }
  }

  /// The next empty chunk with the first offset of a log; false: there is one of each log.
  bool next_beginning(v1::LogChunk& chunk) {
    if (beginnings_ == logs_.size()) return false;
    chunk = chunk_of(logs_[beginnings_++], {}, false);
    return true;
  }

  /// The next piece of what can be read now; false: all of it was read. `finished`: no process writes any more. `live`:
  /// the text was written since this returned false.
  bool next(bool finished, bool live, v1::LogChunk& chunk) {
    while (at_ < logs_.size()) {
      auto& log = logs_[at_];
      if (chunks_ < kChunksATurn && log.offset < log.end) {
        auto piece = logs::read_from(log.path, log.offset, logs::kChunkBytes, finished);
        if (!piece.text.empty()) {
          log.offset = piece.next_offset;
          ++chunks_;
          more_ = true;
          chunk = chunk_of(log, std::move(piece.text), live);
          return true;
        }
      }
      chunks_ = 0;
      // Once more over all of them, until none has anything new.
      if (++at_ == logs_.size() && std::exchange(more_, false)) at_ = 0;
    }
    at_ = 0;
    return false;
  }

 private:
  v1::LogChunk chunk_of(const RankLog& log, std::string text, bool live) const {
    v1::LogChunk chunk;
    chunk.set_attempt(attempt_);
    chunk.set_rank(log.rank);
    chunk.set_data(std::move(text));
    chunk.set_next_offset(log.offset);
    if (live) chunk.set_seen_at_ms(now_ms());
    return chunk;
  }

  core::AttemptNumber attempt_;
  std::vector<RankLog> logs_;
  std::size_t beginnings_ = 0;  // how many were told
  std::size_t at_ = 0;          // whose turn it is
  int chunks_ = 0;              // of its turn
  bool more_ = false;           // some log had more in this round
};

/// Checks a request for the scheduler's log.
grpc::Status check_scheduler(const v1::Job& job, const v1::LogsRequest& request) {
  const auto* attempt = find_attempt(job, first_attempt(job, request));
  if (attempt == nullptr || !attempt->scheduler_job().empty()) return grpc::Status::OK;
  return failure(grpc::StatusCode::FAILED_PRECONDITION,
                 "attempt " + std::to_string(attempt->number()) + " of job " + std::to_string(job.id()) +
                     " has no Slurm log: Slurm did not start it; leave --slurm out");
}

grpc::Status check_request(const v1::Job& job, const v1::LogsRequest& request) {
  const auto name = "job " + std::to_string(job.id());
  if (const auto missing = missing_attempt(job, request.attempt())) return failure(*missing);
  if (request.rank() == proto::kSchedulerLog) return check_scheduler(job, request);
  if (request.has_rank() && request.rank() >= world_size(job)) {
    return failure(grpc::StatusCode::INVALID_ARGUMENT, name + " has no rank " + std::to_string(request.rank()) +
                                                           "; its ranks are 0 to " +
                                                           std::to_string(world_size(job) - 1));
  }
  return grpc::Status::OK;
}

class LogsSource final : public Source<v1::LogChunk> {
 public:
  LogsSource(service::Controller& controller, const v1::LogsRequest& request)
      : controller_(controller),
        request_(request),
        attempt_(request.attempt()),
        says_beginnings_(request.follow() && request.tail_lines() > 0) {}

  Turn next(v1::LogChunk& chunk) override {
    while (true) {
      if (!is_reading_) {
        const auto status = look();
        if (!status.ok()) return Turn::end(status);
      }
      if (logs_) {
        if (says_beginnings_ && logs_->next_beginning(chunk)) return Turn::message();
        says_beginnings_ = false;
        if (logs_->next(finished_ || !request_.follow(), live_, chunk)) return Turn::message();
      }
      is_reading_ = false;
      if (!request_.follow() || (logs_ && finished_ && request_.attempt() != 0)) return Turn::end();
      if (logs_ && finished_ && has_next_) {
        ++attempt_;
        logs_.reset();
        continue;
      }
      if (job_ended_) return Turn::end();
      live_ = true;
      return Turn::wait();
    }
  }

 private:
  /// Reads the job's state, and then may read files: if the attempt has ended, everything that it wrote is in them.
  grpc::Status look() {
    const auto found = controller_.get(request_.job_id());
    if (!found.ok()) return failure(found.refusal());
    const auto& job = found.value();
    const bool is_first = std::exchange(is_first_, false);
    if (is_first) {
      if (auto status = check_request(job, request_); !status.ok()) return status;
      attempt_ = first_attempt(job, request_);
    }
    is_reading_ = true;
    job_ended_ = is_ended_job(job.state());
    // Null before the first attempt exists.
    const auto* now = find_attempt(job, attempt_ == 0 ? 1 : attempt_);
    if (now == nullptr) return grpc::Status::OK;
    attempt_ = now->number();
    finished_ = job_ended_ || now->state() == "ended";
    has_next_ = find_attempt(job, attempt_ + 1) != nullptr;
    if (!logs_) logs_.emplace(controller_, job, attempt_, request_, is_first);
    return grpc::Status::OK;
  }

  service::Controller& controller_;
  const v1::LogsRequest& request_;
  core::AttemptNumber attempt_;
  std::optional<AttemptLogs> logs_;
  bool is_first_ = true;
  bool is_reading_ = false;  // not everything was read that was there at the last look
  bool live_ = false;        // all older text was sent, so text that is found now is new
  bool says_beginnings_;
  // Facts as of the last look.
  bool job_ended_ = false, finished_ = false, has_next_ = false;
};

}  // namespace

std::unique_ptr<grpc::Service> make_job_service(service::Controller& controller, const Callers& callers,
                                                Followers& followers) {
  return std::make_unique<JobService>(controller, callers, followers);
}

std::unique_ptr<grpc::Service> make_admin_service(service::Controller& controller, const Callers& callers) {
  return std::make_unique<AdminService>(controller, callers);
}

std::unique_ptr<Source<v1::LogChunk>> logs_source(service::Controller& controller, const v1::LogsRequest& request) {
  return std::make_unique<LogsSource>(controller, request);
}

}  // namespace rpc
