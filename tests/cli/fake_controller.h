#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "muster/v1/admin_service.pb.h"
#include "muster/v1/job.pb.h"
#include "muster/v1/job_service.pb.h"
#include "tests/system/process.h"

namespace test {

/// The data of the fake controller, and how it misbehaves. Use it under the fake's lock; see with().
struct FakeState {
  std::vector<muster::v1::Job> jobs;
  std::vector<muster::v1::Event> events;
  std::vector<muster::v1::Metric> metrics;
  std::map<std::int64_t, std::vector<muster::v1::Metric>> metrics_of;  // for these jobs, in place of `metrics`
  std::vector<muster::v1::LogChunk> logs;
  std::vector<muster::v1::LogChunk> slurm_logs;  // the answer to a request for Slurm's log

  std::string submit_state = "succeeded";  // state of the jobs of a new sweep
  int overloaded = 0;                      // this many submissions are refused as by gRPC itself
  int store_full = 0;                      // this many submissions are answered with ABORTED: nothing was changed
  std::int64_t lost_job = 0;               // calls about this job are answered with UNAVAILABLE
  int lose_answers = 0;                    // this many submissions are stored but answered with UNAVAILABLE
  int without_place = 0;                   // this many streams that follow are refused: other followers have all places
  int break_streams_after = 0;             // the next stream breaks after this many messages; 0: none breaks
  std::string limit_refusal;               // the scheduler's answer to every new time limit
  int limit_answer_after = 0;              // the answer comes after this many reads of the job
  bool full = false;                       // List answers RESOURCE_EXHAUSTED
  std::string store_problem;
  std::string scheduler_problem;
  std::string no_slurm;             // why there is no Slurm; empty: there is
  muster::v1::MachineView machine;  // without a name: musterd tells of none
  std::string slurm_problem;        // the problem in answers about partitions and nodes
  muster::v1::RemovePartitionResponse removed;
  std::vector<muster::v1::AuditEntry> audit;   // the newest first
  std::vector<muster::v1::TraceView> traces;   // what a request for a trace is answered, one after the other
  std::string trace_refusal;                   // empty: requests are taken
  std::vector<muster::v1::StacksView> stacks;  // the messages of an answer about stacks
  std::string stacks_refusal;                  // empty: requests are taken
  muster::v1::WhyResponse why;
  muster::v1::PlanScriptResponse plan;
  muster::v1::PlanScriptRequest planned;  // the newest request
  muster::v1::CheckScriptResponse check;
  std::string version = "0.1.0", dashboard_url;
  int wire_version = -1;  // what answers to List say; -1: nothing
  int spoken = 0;         // the wire version of the newest List
  std::int64_t free_bytes = std::int64_t{50} << 30;
  std::string submitted_state = "succeeded";  // state of submitted jobs
  int watchers = 0;                           // how many streams of Watch are open
  int watched = 0;                            // how many jobs these have sent

  std::vector<muster::v1::SubmitRequest> submitted;   // every submission, including repeated ones
  std::vector<muster::v1::SubmitSweepRequest> swept;  // every submitted sweep
  std::vector<std::string> asked;                     // "hold 7 by ada", in order
  std::vector<muster::v1::LogsRequest> log_requests;
  std::vector<muster::v1::EventsRequest> event_requests;
  std::vector<muster::v1::MetricsRequest> metrics_requests;
  std::vector<muster::v1::ListRequest> list_requests;
  std::vector<muster::v1::TraceRequest> trace_requests;
  std::vector<muster::v1::StacksRequest> stacks_requests;
};

/// A real gRPC server with the JobService and AdminService of a scripted controller. A stream that follows a job ends
/// when the job has ended.
class FakeController {
 public:
  FakeController();
  ~FakeController();

  std::string address() const;
  /// Closes the port and all connections. start() listens on the same port again.
  void stop();
  void start();

  void with(const std::function<void(FakeState&)>& change);
  template <typename T>
  T get(const std::function<T(FakeState&)>& read) {
    T value{};
    with([&](FakeState& state) { value = read(state); });
    return value;
  }

  /// Runs `muster` with this controller, in `folder` if one is given.
  Finished muster(std::vector<std::string> arguments, std::map<std::string, std::string> more = {});
  std::map<std::string, std::string> environment() const;
  const TemporaryFolder& folder() const { return folder_; }

  static constexpr const char* kToken = "the-token";

 private:
  struct Services;
  TemporaryFolder folder_;
  std::unique_ptr<Services> services_;
};

/// A running job with two ranks and an earlier attempt.
muster::v1::Job sample_job(std::int64_t id, const std::string& state);

}  // namespace test
