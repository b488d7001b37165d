#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "muster/v1/admin_service.pb.h"
#include "muster/v1/job.pb.h"
#include "muster/v1/job_service.pb.h"
#include "system/process.h"

namespace test {

/// What the fake controller holds and how it misbehaves. Read and written under the fake's lock: see with().
struct FakeState {
  std::vector<muster::v1::Job> jobs;
  std::vector<muster::v1::Event> events;
  std::vector<muster::v1::Metric> metrics;
  std::map<std::int64_t, std::vector<muster::v1::Metric>> metrics_of;  // of these jobs rather than `metrics`
  std::vector<muster::v1::LogChunk> logs;
  std::vector<muster::v1::LogChunk> slurm_logs;  // of what is asked for as Slurm's

  std::string submit_state = "succeeded";  // of the jobs of a new sweep
  int overloaded = 0;                      // so many submissions gRPC itself turns away
  int store_full = 0;                      // so many submissions are answered with ABORTED: nothing was changed
  std::int64_t lost_job = 0;               // calls about this job are answered with UNAVAILABLE
  int lose_answers = 0;                    // so many submissions are stored but answered with UNAVAILABLE
  int break_streams_after = 0;             // the next stream breaks after so many messages; 0: none does
  std::string limit_refusal;               // of the scheduler, to every new time limit
  int limit_answer_after = 0;              // and only after so many looks at the job
  bool full = false;                       // List answers RESOURCE_EXHAUSTED
  std::string store_problem;
  std::string scheduler_problem;
  std::string no_slurm;       // why there is none; empty: there is
  std::string slurm_problem;  // of partitions and nodes
  muster::v1::RemovePartitionResponse removed;
  std::vector<muster::v1::AuditEntry> audit;  // the newest first
  muster::v1::WhyResponse why;
  muster::v1::PlanScriptResponse plan;
  muster::v1::PlanScriptRequest planned;  // the newest that was asked for
  muster::v1::CheckScriptResponse check;
  std::string version = "0.1.0", dashboard_url;
  std::int64_t free_bytes = std::int64_t{50} << 30;
  std::string submitted_state = "succeeded";  // of the jobs that come
  int watchers = 0;                           // streams of Watch that are open
  int watched = 0;                            // jobs that those have sent

  std::vector<muster::v1::SubmitRequest> submitted;   // every one that came, repeated ones too
  std::vector<muster::v1::SubmitSweepRequest> swept;  // the same of sweeps
  std::vector<std::string> asked;                     // "hold 7 by ada", in order
  std::vector<muster::v1::LogsRequest> log_requests;
  std::vector<muster::v1::EventsRequest> event_requests;
  std::vector<muster::v1::MetricsRequest> metrics_requests;
  std::vector<muster::v1::ListRequest> list_requests;
};

/// JobService and AdminService of a controller that does what a test says, on a port of its own. Streams that follow
/// end when the job they are about has ended.
class FakeController {
 public:
  FakeController();
  ~FakeController();

  std::string address() const;
  /// Refuses connections and cuts those there are; start() listens on the same port again.
  void stop();
  void start();

  void with(const std::function<void(FakeState&)>& change);
  template <typename T>
  T get(const std::function<T(FakeState&)>& read) {
    T value{};
    with([&](FakeState& state) { value = read(state); });
    return value;
  }

  /// Runs `muster` against it, in `folder` if one is given.
  Finished muster(std::vector<std::string> arguments, std::map<std::string, std::string> more = {});
  std::map<std::string, std::string> environment() const;
  const TempFolder& folder() const { return folder_; }

  static constexpr const char* kToken = "the-token";

 private:
  struct Services;
  TempFolder folder_;
  std::unique_ptr<Services> services_;
};

/// A running two-rank job with a past.
muster::v1::Job sample_job(std::int64_t id, const std::string& state);

}  // namespace test
