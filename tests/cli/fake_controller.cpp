#include "tests/cli/fake_controller.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "controller/core/apply.h"
#include "muster/v1/admin_service.grpc.pb.h"
#include "muster/v1/job_service.grpc.pb.h"
#include "proto/wire/logs.h"
#include "proto/wire/version.h"
#include "tests/job_series.h"
#include "tests/places.h"

namespace test {
namespace {

using grpc::ServerContext;
using grpc::ServerWriter;
using grpc::Status;
using grpc::StatusCode;
using namespace muster::v1;

bool ended(const Job& job) {
  return job.state() == "succeeded" || job.state() == "failed" || job.state() == "cancelled";
}

/// True if people may ask this of the job; decides as the controller does.
bool may_be_asked(const Job& shown, const std::string& what) {
  core::Job job;
  job.state = core::job_state_from_string(shown.state()).value_or(core::JobState::kPending);
  job.held = !shown.held_by().empty();
  const auto refusal = what == "cancel"    ? core::refusal_text(job, core::CancelRequested{})
                       : what == "requeue" ? core::refusal_text(job, core::RequeueRequested{})
                       : what == "release" ? core::refusal_text(job, core::ReleaseRequested{})
                       : what == "rm"      ? core::refusal_text(job, core::JobRemoved{})
                                           : std::string();
  return refusal.empty();
}

struct Shared {
  std::mutex mutex;
  FakeState state;
};

void tell_wire_version(ServerContext& context, FakeState& state) {
  if (state.wire_version >= 0) {
    context.AddInitialMetadata(proto::kWireVersionKey, std::to_string(state.wire_version));
  }
  state.spoken = proto::told_wire_version(context.client_metadata()).value_or(0);
}

bool allowed(const ServerContext& context) {
  const auto found = context.client_metadata().find("authorization");
  return found != context.client_metadata().end() && found->second == std::string("Bearer ") + FakeController::kToken;
}

Status refused() {
  return {StatusCode::UNAUTHENTICATED, "wrong token"};
}

class Jobs final : public JobService::Service {
 public:
  explicit Jobs(Shared& shared) : shared_(shared) {}

  Status Submit(ServerContext* context, const SubmitRequest* request, SubmitResponse* response) override {
    if (!allowed(*context)) return refused();
    std::lock_guard lock(shared_.mutex);
    auto& state = shared_.state;
    if (state.overloaded-- > 0) return {StatusCode::RESOURCE_EXHAUSTED, "Server Threadpool Exhausted"};
    if (state.store_full-- > 0) return {StatusCode::ABORTED, "nothing was changed: the disk is full"};
    for (std::size_t i = 0; i < state.submitted.size(); ++i) {
      if (state.submitted[i].request_id() == request->request_id()) response->set_already_submitted(true);
    }
    state.submitted.push_back(*request);
    if (!response->already_submitted()) {
      auto job = sample_job(static_cast<std::int64_t>(state.jobs.size()) + 1, state.submitted_state);
      *job.mutable_spec() = request->spec();
      state.jobs.push_back(job);
    }
    response->set_job_id(static_cast<std::int64_t>(state.jobs.size()));
    return state.lose_answers-- > 0 ? Status(StatusCode::UNAVAILABLE, "Socket closed") : Status::OK;
  }

  Status SubmitSweep(ServerContext* context, const SubmitSweepRequest* request,
                     SubmitSweepResponse* response) override {
    if (!allowed(*context)) return refused();
    std::lock_guard lock(shared_.mutex);
    auto& state = shared_.state;
    const bool known = !state.swept.empty() && state.swept.back().request_id() == request->request_id();
    state.swept.push_back(*request);
    response->set_already_submitted(known);
    if (!known) {
      const auto sweep = "s" + std::to_string(state.jobs.size() + 1);
      for (const auto& spec : request->specs()) {
        auto job = sample_job(static_cast<std::int64_t>(state.jobs.size()) + 1, state.submit_state);
        *job.mutable_sweep() = spec.sweep();
        job.mutable_sweep()->set_sweep(sweep);
        job.set_name(spec.name());
        state.jobs.push_back(job);
      }
    }
    response->set_sweep(state.jobs.back().sweep().sweep());
    for (const auto& job : state.jobs) {
      if (job.sweep().sweep() == response->sweep()) response->add_job_ids(job.id());
    }
    return state.lose_answers-- > 0 ? Status(StatusCode::UNAVAILABLE, "Socket closed") : Status::OK;
  }

  Status Hold(ServerContext* context, const HoldRequest* request, Job* response) override {
    return change(*context, "hold", request->job_id(), request->user(), response, [&](Job& job) {
      job.set_held_by(request->user());
      job.set_reason("held by " + request->user() + ", no further attempt starts");
    });
  }

  Status Release(ServerContext* context, const HoldRequest* request, Job* response) override {
    return change(*context, "release", request->job_id(), request->user(), response,
                  [](Job& job) { job.clear_held_by(); });
  }

  Status SetTimeLimit(ServerContext* context, const SetTimeLimitRequest* request, Job* response) override {
    const auto refusal = [&] {
      std::lock_guard lock(shared_.mutex);
      return shared_.state.limit_refusal;
    }();
    return change(*context, "limit", request->job_id(), request->user(), response, [&](Job& job) {
      if (refusal.empty()) {
        job.set_time_limit_ms(request->time_limit_ms());
      } else {
        job.set_time_limit_asked_ms(request->time_limit_ms());
      }
    });
  }

  Status ChangeSweep(ServerContext* context, const ChangeSweepRequest* request,
                     ChangeSweepResponse* response) override {
    if (!allowed(*context)) return refused();
    constexpr std::array kWords = {"", "cancel", "requeue", "hold", "release"};
    std::lock_guard lock(shared_.mutex);
    auto& state = shared_.state;
    state.asked.push_back(std::string(kWords.at(static_cast<std::size_t>(request->change()))) + " sweep " +
                          request->sweep() + (request->user().empty() ? "" : " by someone"));
    int known = 0;
    for (auto& job : state.jobs) {
      if (job.sweep().sweep() != request->sweep()) continue;
      ++known;
      if (ended(job) && request->change() != SWEEP_CHANGE_REQUEUE) {
        response->set_refused(response->refused() + 1);
        response->set_refusal("job " + std::to_string(job.id()) + " has ended already");
        continue;
      }
      if (request->change() == SWEEP_CHANGE_HOLD) job.set_held_by(request->user());
      if (request->change() == SWEEP_CHANGE_RELEASE) job.clear_held_by();
      *response->add_jobs() = job;
    }
    if (known == 0) return {StatusCode::NOT_FOUND, "no sweep " + request->sweep() + "; muster list shows them"};
    if (response->jobs_size() == 0) return {StatusCode::FAILED_PRECONDITION, "none of the jobs allows it"};
    return Status::OK;
  }

  Status Remove(ServerContext* context, const RemoveRequest* request, RemoveResponse* response) override {
    if (!allowed(*context)) return refused();
    std::lock_guard lock(shared_.mutex);
    auto& state = shared_.state;
    for (const auto id : request->job_ids()) {
      const auto found = std::ranges::find_if(state.jobs, [&](const Job& job) { return job.id() == id; });
      if (found == state.jobs.end() || !ended(*found)) {
        auto& refusal = *response->add_refused();
        refusal.set_job_id(id);
        refusal.set_is_gone(found == state.jobs.end());
        refusal.set_why(refusal.is_gone() ? "there is no job " + std::to_string(id)
                                          : "job " + std::to_string(id) + " is " + found->state());
        continue;
      }
      auto& removed = *response->add_removed();
      removed.set_job_id(id);
      removed.set_name(found->name());
      removed.set_state(found->state());
      removed.set_bytes(std::int64_t{3} << 30);
      if (request->dry_run()) continue;
      state.asked.push_back("remove " + std::to_string(id) + (request->user().empty() ? "" : " by someone"));
      state.jobs.erase(found);
    }
    return Status::OK;
  }

  Status Why(ServerContext* context, const GetRequest* request, WhyResponse* response) override {
    Job job;
    if (const auto status = answer(*context, request->job_id(), &job); !status.ok()) return status;
    with([&](FakeState& state) { *response = state.why; });
    response->set_job_id(job.id());
    response->set_state(job.state());
    return Status::OK;
  }

  Status PlanScript(ServerContext* context, const PlanScriptRequest* request, PlanScriptResponse* response) override {
    if (!allowed(*context)) return refused();
    with([&](FakeState& state) {
      state.planned = *request;
      *response = state.plan;
    });
    return Status::OK;
  }

  Status CheckScript(ServerContext* context, const PlanScriptRequest* request, CheckScriptResponse* response) override {
    if (!allowed(*context)) return refused();
    with([&](FakeState& state) {
      state.asked.push_back("check " + request->specs(0).name());
      *response = state.check;
    });
    return Status::OK;
  }

  Status List(ServerContext* context, const ListRequest* request, ListResponse* response) override {
    if (!allowed(*context)) return refused();
    std::lock_guard lock(shared_.mutex);
    tell_wire_version(*context, shared_.state);
    if (shared_.state.full) return {StatusCode::RESOURCE_EXHAUSTED, "max_streams: 3 are open, the limit"};
    shared_.state.list_requests.push_back(*request);
    const auto& jobs = shared_.state.jobs;
    std::int64_t fitting = 0;
    for (auto job = jobs.rbegin(); job != jobs.rend(); ++job) {
      const auto& states = request->states();
      if (!states.empty() && std::ranges::find(states, job->state()) == states.end()) continue;
      if (!request->sweep().empty() && job->sweep().sweep() != request->sweep()) continue;
      if (!may_be_asked(*job, request->may())) continue;
      const auto& ids = request->job_ids();
      if (!ids.empty() && std::ranges::find(ids, job->id()) == ids.end()) continue;
      ++fitting;
      if (request->before_id() != 0 && job->id() >= request->before_id()) continue;
      if (static_cast<std::uint32_t>(response->jobs_size()) >= request->limit()) continue;
      *response->add_jobs() = *job;
      if (request->with_series()) add_series(*response->mutable_jobs()->rbegin());
    }
    response->set_total(fitting);
    return Status::OK;
  }

  Status Get(ServerContext* context, const GetRequest* request, Job* response) override {
    {
      // A scheduler answers late.
      std::lock_guard lock(shared_.mutex);
      auto& state = shared_.state;
      for (auto& job : state.jobs) {
        if (job.id() != request->job_id() || !job.has_time_limit_asked_ms() || --state.limit_answer_after > 0) continue;
        job.clear_time_limit_asked_ms();
        job.set_time_limit_problem(state.limit_refusal);
      }
    }
    return answer(*context, request->job_id(), response);
  }

  Status GetSpec(ServerContext* context, const GetRequest* request, JobSpec* response) override {
    Job job;
    if (const auto status = answer(*context, request->job_id(), &job); !status.ok()) return status;
    *response = job.spec();
    return Status::OK;
  }

  Status Cancel(ServerContext* context, const CancelRequest* request, Job* response) override {
    const auto status = answer(*context, request->job_id(), response);
    if (!status.ok() || !ended(*response)) return status;
    return {StatusCode::FAILED_PRECONDITION, "job " + std::to_string(request->job_id()) + " has ended already"};
  }

  Status Requeue(ServerContext* context, const RequeueRequest* request, Job* response) override {
    return answer(*context, request->job_id(), response);
  }

  Status Watch(ServerContext* context, const GetRequest* request, ServerWriter<Job>* writer) override {
    with([](FakeState& state) { ++state.watchers; });
    const auto status = watch(context, request, writer);
    with([](FakeState& state) { --state.watchers; });
    return status;
  }

  /// Sends all views that are scripted, and waits for the client after them.
  Status Trace(ServerContext* context, const TraceRequest* request, ServerWriter<TraceView>* writer) override {
    if (!allowed(*context)) return refused();
    std::vector<TraceView> views;
    std::string refusal;
    int left = 0;
    with([&](FakeState& state) {
      state.trace_requests.push_back(*request);
      views = state.traces;
      refusal = state.trace_refusal;
      left = std::exchange(state.break_streams_after, 0);
    });
    if (!refusal.empty()) return {StatusCode::FAILED_PRECONDITION, refusal};
    for (const auto& view : views) {
      writer->Write(view);
      if (left > 0 && --left == 0) return {StatusCode::UNAVAILABLE, "Socket closed"};
      if (!request->follow() || view.state() == "over") return Status::OK;
    }
    while (!context->IsCancelled()) std::this_thread::sleep_for(5ms);
    return {StatusCode::UNAVAILABLE, "shutting down"};
  }

  Status Stacks(ServerContext* context, const StacksRequest* request, ServerWriter<StacksView>* writer) override {
    if (!allowed(*context)) return refused();
    std::vector<StacksView> views;
    std::string refusal;
    with([&](FakeState& state) {
      state.stacks_requests.push_back(*request);
      views = state.stacks;
      refusal = state.stacks_refusal;
    });
    if (!refusal.empty()) return {StatusCode::FAILED_PRECONDITION, refusal};
    for (const auto& view : views) writer->Write(view);
    return Status::OK;
  }

  Status Events(ServerContext* context, const EventsRequest* request, ServerWriter<Event>* writer) override {
    with([&](FakeState& state) { state.event_requests.push_back(*request); });
    auto after = request->after_id();
    return stream<Event>(*context, request->job_id(), request->follow(), writer, [&](FakeState& state) {
      std::vector<Event> news;
      for (const auto& event : state.events) {
        if (event.id() > after) news.push_back(event);
      }
      if (!news.empty()) after = news.back().id();
      return news;
    });
  }

  Status Metrics(ServerContext* context, const MetricsRequest* request, ServerWriter<Metric>* writer) override {
    with([&](FakeState& state) { state.metrics_requests.push_back(*request); });
    std::size_t sent = 0;
    return stream<Metric>(*context, request->job_id(), request->follow(), writer, [&](FakeState& state) {
      const auto& all = metrics_of(state, request->job_id());
      std::vector<Metric> news(all.begin() + static_cast<std::ptrdiff_t>(sent), all.end());
      sent = all.size();
      return news;
    });
  }

  Status SweepMetrics(ServerContext* context, const SweepMetricsRequest* request,
                      ServerWriter<JobMetrics>* writer) override {
    if (!allowed(*context)) return refused();
    std::lock_guard lock(shared_.mutex);
    shared_.state.asked.push_back("metrics of " + request->sweep());
    for (const auto& job : shared_.state.jobs) {
      if (job.sweep().sweep() != request->sweep()) continue;
      JobMetrics some;
      some.set_job_id(job.id());
      for (const auto& metric : metrics_of(shared_.state, job.id())) {
        const auto value = metric.series().find(request->series());
        if (value == metric.series().end()) continue;
        auto& one = *some.add_metrics();
        one.set_attempt(metric.attempt());
        one.set_step(metric.step());
        (*one.mutable_series())[request->series()] = value->second;
      }
      if (some.metrics_size() > 0) writer->Write(some);
    }
    return Status::OK;
  }

  Status Logs(ServerContext* context, const LogsRequest* request, ServerWriter<LogChunk>* writer) override {
    std::size_t sent = 0;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> begins, ends;
    std::uint32_t first_attempt = 0;
    for (const auto& from : request->from()) {
      begins[{from.attempt(), from.rank()}] = from.offset();
      first_attempt = std::max(first_attempt, from.attempt());
    }
    with([&](FakeState& state) { state.log_requests.push_back(*request); });
    return stream<LogChunk>(*context, request->job_id(), request->follow(), writer, [&](FakeState& state) {
      std::vector<LogChunk> news;
      const auto& logs = request->rank() == proto::kSchedulerLog ? state.slurm_logs : state.logs;
      for (; sent < logs.size(); ++sent) {
        LogChunk chunk = logs[sent];
        const auto key = std::pair{chunk.attempt(), chunk.rank()};
        const auto size = chunk.data().size();
        const auto known = std::min<std::uint64_t>(size, begins[key] - std::min(begins[key], ends[key]));
        ends[key] += size;
        if (chunk.attempt() < first_attempt || (known == size && size > 0)) continue;
        chunk.mutable_data()->erase(0, known);
        chunk.set_next_offset(ends[key]);
        news.push_back(chunk);
      }
      return news;
    });
  }

 private:
  static const std::vector<Metric>& metrics_of(const FakeState& state, std::int64_t job) {
    const auto own = state.metrics_of.find(job);
    return own == state.metrics_of.end() ? state.metrics : own->second;
  }
  /// Adds the series that the job's metrics have, unless the test has said them. Under the lock.
  void add_series(Job& job) {
    if (job.series_size() > 0) return;
    for (const auto& metric : metrics_of(shared_.state, job.id())) note_series(job, metric);
  }
  void with(const std::function<void(FakeState&)>& change) {
    std::lock_guard lock(shared_.mutex);
    change(shared_.state);
  }

  Status answer(ServerContext& context, std::int64_t id, Job* response) {
    if (!allowed(context)) return refused();
    std::lock_guard lock(shared_.mutex);
    if (id == shared_.state.lost_job) return {StatusCode::UNAVAILABLE, "Socket closed"};
    for (const auto& job : shared_.state.jobs) {
      if (job.id() == id) *response = job;
    }
    if (response->id() == id) add_series(*response);
    return response->id() == id ? Status::OK : Status(StatusCode::NOT_FOUND, "no job " + std::to_string(id));
  }

  Status change(ServerContext& context, const std::string& what, std::int64_t id, const std::string& user,
                Job* response, const std::function<void(Job&)>& make) {
    if (const auto status = answer(context, id, response); !status.ok()) return status;
    if (ended(*response)) {
      return {StatusCode::FAILED_PRECONDITION, "job " + std::to_string(id) + " has ended (" + response->state() + ")"};
    }
    with([&](FakeState& state) {
      state.asked.push_back(what + " " + std::to_string(id) + (user.empty() ? "" : " by someone"));
      for (auto& job : state.jobs) {
        if (job.id() != id) continue;
        make(job);
        *response = job;
      }
    });
    return Status::OK;
  }

  /// How musterd answers whoever follows while others have all places.
  std::optional<Status> without_place() {
    std::lock_guard lock(shared_.mutex);
    auto& left = shared_.state.without_place;
    if (left == 0) return std::nullopt;
    --left;
    return Status(StatusCode::RESOURCE_EXHAUSTED, "max_streams_of_user: ada has 16 followers, the limit; end one");
  }

  Status watch(ServerContext* context, const GetRequest* request, ServerWriter<Job>* writer) {
    if (const auto refusal = without_place()) return *refusal;
    std::string shown;
    while (!context->IsCancelled()) {
      Job job;
      if (const auto status = answer(*context, request->job_id(), &job); !status.ok()) return status;
      if (job.SerializeAsString() != shown) {
        writer->Write(job);
        with([](FakeState& state) { ++state.watched; });
      }
      if (ended(job)) return Status::OK;
      shown = job.SerializeAsString();
      std::this_thread::sleep_for(5ms);
    }
    return {StatusCode::UNAVAILABLE, "shutting down"};
  }

  template <typename Message>
  Status stream(ServerContext& context, std::int64_t id, bool follow, ServerWriter<Message>* writer,
                const std::function<std::vector<Message>(FakeState&)>& news) {
    if (const auto refusal = follow ? without_place() : std::nullopt) return *refusal;
    Job job;
    job.set_state("running");
    int left = 0;
    with([&](FakeState& state) { left = std::exchange(state.break_streams_after, 0); });
    while (!context.IsCancelled()) {
      if (id != 0) {
        if (const auto status = answer(context, id, &job); !status.ok()) return status;
      }
      std::vector<Message> messages;
      with([&](FakeState& state) { messages = news(state); });
      for (const auto& message : messages) {
        writer->Write(message);
        if (left > 0 && --left == 0) return {StatusCode::UNAVAILABLE, "Socket closed"};
      }
      if (!follow || ended(job)) return Status::OK;
      std::this_thread::sleep_for(5ms);
    }
    return {StatusCode::UNAVAILABLE, "shutting down"};
  }

  Shared& shared_;
};

class Admin final : public AdminService::Service {
 public:
  explicit Admin(Shared& shared) : shared_(shared) {}
  grpc::Status ListNodes(ServerContext* context, const ListNodesRequest*, ListNodesResponse* response) override {
    if (!allowed(*context)) return refused();
    std::lock_guard lock(shared_.mutex);
    response->set_slurm_problem(shared_.state.slurm_problem);
    if (!shared_.state.machine.name().empty()) *response->mutable_machine() = shared_.state.machine;
    return grpc::Status::OK;
  }
  grpc::Status ListPartitions(ServerContext* context, const ListPartitionsRequest*,
                              ListPartitionsResponse* response) override {
    if (!allowed(*context)) return refused();
    std::lock_guard lock(shared_.mutex);
    if (!shared_.state.no_slurm.empty()) return {StatusCode::FAILED_PRECONDITION, shared_.state.no_slurm};
    response->set_slurm_problem(shared_.state.slurm_problem);
    return grpc::Status::OK;
  }
  grpc::Status RemovePartition(ServerContext* context, const RemovePartitionRequest* request,
                               RemovePartitionResponse* response) override {
    if (!allowed(*context)) return refused();
    std::lock_guard lock(shared_.mutex);
    shared_.state.asked.push_back("remove " + request->name() + (request->user().empty() ? "" : " by someone"));
    *response = shared_.state.removed;
    return grpc::Status::OK;
  }
  grpc::Status ListAudit(ServerContext* context, const ListAuditRequest* request,
                         ListAuditResponse* response) override {
    if (!allowed(*context)) return refused();
    std::lock_guard lock(shared_.mutex);
    for (const auto& entry : shared_.state.audit) {
      const bool older = request->before_id() == 0 || entry.id() < request->before_id();
      const bool wanted = request->partition().empty() || entry.partition() == request->partition();
      const auto count = static_cast<std::uint32_t>(response->entries_size());
      if (older && wanted && count < request->limit()) *response->add_entries() = entry;
    }
    return grpc::Status::OK;
  }
  grpc::Status Status(ServerContext* context, const StatusRequest*, StatusResponse* response) override {
    if (!allowed(*context)) return refused();
    std::lock_guard lock(shared_.mutex);
    response->set_version(shared_.state.version);
    response->set_pid(4711);
    response->set_data_folder("/var/lib/muster");
    response->set_data_free_bytes(shared_.state.free_bytes);
    response->set_dashboard_url(shared_.state.dashboard_url);
    const bool slurm = shared_.state.no_slurm.empty();
    response->set_executor(slurm ? "slurm" : "local");
    response->add_executors("local");
    if (slurm) response->add_executors("slurm");
    response->set_scheduler_problem(shared_.state.scheduler_problem);
    response->set_store_problem(shared_.state.store_problem);
    return grpc::Status::OK;
  }

 private:
  Shared& shared_;
};

}  // namespace

struct FakeController::Services {
  Shared shared;
  Jobs jobs{shared};
  Admin admin{shared};
  int port = 0;
  std::unique_ptr<grpc::Server> server;
};

FakeController::FakeController() : services_(std::make_unique<Services>()) {
  write_file(folder_.path() / "token", kToken);
  std::filesystem::permissions(folder_.path() / "token",
                               std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  start();
}

FakeController::~FakeController() {
  stop();
}

std::string FakeController::address() const {
  return "127.0.0.1:" + std::to_string(services_->port);
}

void FakeController::start() {
  const auto wanted = "127.0.0.1:" + std::to_string(services_->port);
  const bool listens = eventually(
      [&] {
        grpc::ServerBuilder builder;
        builder.AddListeningPort(wanted, grpc::InsecureServerCredentials(), &services_->port);
        builder.RegisterService(&services_->jobs);
        builder.RegisterService(&services_->admin);
        services_->server = builder.BuildAndStart();
        return services_->server != nullptr;
      },
      10s);
  if (!listens) throw std::runtime_error("cannot listen on " + wanted);
}

void FakeController::stop() {
  if (!services_->server) return;
  services_->server->Shutdown(std::chrono::system_clock::now());
  services_->server->Wait();
  services_->server.reset();
}

void FakeController::with(const std::function<void(FakeState&)>& change) {
  std::lock_guard lock(services_->shared.mutex);
  change(services_->shared.state);
}

std::map<std::string, std::string> FakeController::environment() const {
  return {{"MUSTER_ADDRESS", address()},
          {"MUSTER_TOKEN_FILE", folder_.path() / "token"},
          {"HOME", folder_.path()},
          {"COLUMNS", "80"},
          {"http_proxy", "http://127.0.0.1:9"},  // muster must ignore the proxy
          {"grpc_proxy", "http://127.0.0.1:9"}};
}

Finished FakeController::muster(std::vector<std::string> arguments, std::map<std::string, std::string> more) {
  arguments.insert(arguments.begin(), ::test::built_program("muster"));
  auto variables = environment();
  for (const auto& [name, value] : more) variables[name] = value;
  return run(arguments, variables, 30s);
}

Job sample_job(std::int64_t id, const std::string& state) {
  Job job;
  job.set_id(id);
  job.set_name("manpages-llama-with-a-rather-long-name");
  job.set_state(state);
  job.set_reason("attempt 2 runs since the controller saw rank 1 killed by SIGKILL at step 50");
  job.set_user("ada");
  job.set_kind("recipe");
  job.set_submitted_at("2026-11-20T19:48:55.123Z");
  job.set_started_at("2026-11-20T19:48:56.000Z");
  job.set_step(50);
  job.set_steps_total(150);
  job.set_last_checkpoint_step(40);
  job.set_loss(2.8712);
  job.set_tokens_per_s(21034.5);
  job.mutable_spec()->set_name(job.name());
  job.mutable_spec()->mutable_resources()->set_nodes(1);
  job.mutable_spec()->mutable_resources()->set_ranks_per_node(2);
  (*job.mutable_spec()->mutable_env())["STARTED_AT"] = "";
  for (std::uint32_t number : {1U, 2U}) {
    auto& attempt = *job.add_attempts();
    attempt.set_number(number);
    attempt.set_state(number == 1 ? "ended" : "running");
    attempt.set_cause(number == 1 ? "rank_silent" : "");
    attempt.set_reason(number == 1 ? "rank 1 said nothing for 2.6 s and its process was stopped" : "");
    attempt.set_started_at("2026-11-20T19:48:56.000Z");
    if (number == 1) attempt.set_ended_at("2026-11-20T19:49:56.000Z");
    attempt.set_resumed_from_step(number == 1 ? 0 : 40);
  }
  for (std::uint32_t number : {0U, 1U}) {
    auto& rank = *job.add_ranks();
    rank.set_rank(number);
    rank.set_node("a-node-with-a-long-name.example.org");
    rank.set_pid(123456);
    rank.set_state("running");
    rank.set_section("step");
    rank.set_step(50);
    rank.set_last_heartbeat_ms(312);
    rank.set_memory_bytes(812 << 20);
    rank.set_step_ms(81.5);
  }
  return job;
}

}  // namespace test
