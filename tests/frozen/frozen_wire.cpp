// The programs of a released version as far as the wire knows them, compiled from its .proto files alone:
//   client ADDRESS       submits a command, watches it to its end and prints what it reads
//   rank                 the one rank of a job: reports three steps, as a program with a report file would be reported
//   controller           answers as musterd did, for today's muster; prints its port
// The token is in MUSTER_TOKEN, and in MUSTER_RANK_TOKEN for a rank.
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>

#include "muster/v1/admin_service.grpc.pb.h"
#include "muster/v1/job_service.grpc.pb.h"
#include "muster/v1/rank_service.grpc.pb.h"

namespace {

namespace v1 = muster::v1;
using grpc::ServerContext;
using grpc::Status;

constexpr std::chrono::seconds kLimit{60};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

struct Call : grpc::ClientContext {
  explicit Call(const std::string& token) {
    AddMetadata("authorization", "Bearer " + token);
    set_deadline(std::chrono::system_clock::now() + kLimit);
  }
};

void must(const Status& status, const char* what) {
  if (status.ok()) return;
  std::cerr << what << ": " << status.error_code() << " " << status.error_message() << "\n";
  std::exit(1);
}

std::shared_ptr<grpc::Channel> channel_to(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

int client(const std::string& address) {
  const auto token = variable("MUSTER_TOKEN");
  const auto jobs = v1::JobService::NewStub(channel_to(address));
  v1::SubmitRequest request;
  request.set_request_id("frozen-client");
  request.set_user("ann");
  request.mutable_spec()->set_name("frozen");
  request.mutable_spec()->set_working_folder("/tmp");
  for (const auto* word : {"/bin/sh", "-c", "echo hello"}) request.mutable_spec()->mutable_command()->add_argv(word);
  v1::SubmitResponse submitted;
  {
    Call call(token);
    must(jobs->Submit(&call, request, &submitted), "Submit");
  }
  v1::GetRequest which;
  which.set_job_id(submitted.job_id());
  v1::Job job;
  {
    Call call(token);
    const auto watch = jobs->Watch(&call, which);
    while (watch->Read(&job)) continue;
    must(watch->Finish(), "Watch");
  }
  std::cout << "state " << job.state() << ", attempts " << job.attempts_size() << "\n";
  {
    Call call(token);
    v1::LogsRequest logs;
    logs.set_job_id(submitted.job_id());
    const auto read = jobs->Logs(&call, logs);
    v1::LogChunk chunk;
    while (read->Read(&chunk)) std::cout << "log " << chunk.data();
    must(read->Finish(), "Logs");
  }
  v1::ListResponse listed;
  Call call(token);
  must(jobs->List(&call, {}, &listed), "List");
  std::cout << "listed " << listed.jobs_size() << ", newest " << listed.jobs(0).name() << "\n";
  return 0;
}

int rank() {
  const auto token = variable("MUSTER_RANK_TOKEN");
  const auto ranks = v1::RankService::NewStub(channel_to(variable("MUSTER_CONTROLLER")));
  v1::RankKey key;
  key.set_job_id(std::stoll(variable("MUSTER_JOB_ID")));
  key.set_attempt(static_cast<std::uint32_t>(std::stoul(variable("MUSTER_ATTEMPT"))));
  {
    Call call(token);
    v1::RegisterRequest request;
    *request.mutable_key() = key;
    request.set_world_size(1);
    request.set_pid(::getpid());
    v1::RegisterResponse answer;
    must(ranks->Register(&call, request, &answer), "Register");
    if (answer.heartbeat_interval_ms() <= 0) return 1;
  }
  Call call(token);
  const auto stream = ranks->Beat(&call);
  v1::BeatResponse answer;
  for (int step = 1; step <= 3; ++step) {
    v1::HeartbeatRequest beat;
    *beat.mutable_key() = key;
    beat.set_step(step);
    beat.set_section(v1::SECTION_STEP);
    beat.set_answer_soon(true);
    beat.set_first_metric(static_cast<std::uint64_t>(step - 1));
    auto& series = *beat.add_series();
    series.set_name("loss");
    auto& metric = *beat.add_metrics();
    metric.set_step(step);
    metric.set_at_ms(
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
            .count());
    auto& value = *metric.add_values();
    value.set_series("loss");
    value.set_value(1.0 / step);
    beat.set_leaving(step == 3);
    if (!stream->Write(beat)) break;
    while (answer.metrics_durable() < static_cast<std::uint64_t>(step) && stream->Read(&answer)) continue;
  }
  stream->WritesDone();
  while (stream->Read(&answer)) continue;
  must(stream->Finish(), "Beat");
  return answer.metrics_durable() == 3 ? 0 : 1;
}

v1::Job known_job() {
  v1::Job job;
  job.set_id(7);
  job.set_name("old");
  job.set_state("succeeded");
  job.set_status("succeeded");
  job.set_user("ann");
  job.set_kind("command");
  job.set_submitted_at("2026-11-30T12:00:00.000Z");
  job.set_reason("all ranks ended with exit code 0");
  return job;
}

class OldJobs final : public v1::JobService::Service {
  Status Submit(ServerContext*, const v1::SubmitRequest*, v1::SubmitResponse* response) override {
    response->set_job_id(8);
    return Status::OK;
  }
  Status List(ServerContext*, const v1::ListRequest*, v1::ListResponse* response) override {
    *response->add_jobs() = known_job();
    response->set_total(1);
    return Status::OK;
  }
  Status Get(ServerContext*, const v1::GetRequest*, v1::Job* response) override {
    *response = known_job();
    return Status::OK;
  }
};

class OldAdmin final : public v1::AdminService::Service {
  grpc::Status Status(ServerContext*, const v1::StatusRequest*, v1::StatusResponse* response) override {
    response->set_version("0.1.0");
    response->set_pid(4711);
    response->set_executor("local");
    return grpc::Status::OK;
  }
};

int controller() {
  OldJobs jobs;
  OldAdmin admin;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&jobs);
  builder.RegisterService(&admin);
  const auto server = builder.BuildAndStart();
  if (!server) return 1;
  std::cout << port << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) continue;  // until whoever started it closes the pipe
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if (role == "client" && argc == 3) return client(argv[2]);
  if (role == "rank") return rank();
  if (role == "controller") return controller();
  std::cerr << "frozen_wire: want client ADDRESS, rank or controller\n";
  return 2;
}
