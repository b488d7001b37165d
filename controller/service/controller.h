#pragma once

#include <memory>
#include <string>
#include <vector>

#include "controller/common/hearing.h"
#include "controller/common/outcome.h"
#include "controller/core/job.h"
#include "controller/ranks/rank_streams.h"
#include "controller/store/store.h"
#include "muster/v1/admin_service.pb.h"
#include "muster/v1/job.pb.h"
#include "muster/v1/job_service.pb.h"
#include "muster/v1/machine.pb.h"
#include "muster/v1/rank_service.pb.h"

namespace service {

/// The interface that rpc/ and http/ serve: every use case of muster behind one door. Thread-safe; calls that write
/// return when the write is durable. Implemented by service/ (make_controller in controller_impl.h); tests of rpc/ and
/// http/ use it with the in-memory store and a fake executor.
class Controller {
 public:
  virtual ~Controller() = default;

  // People
  virtual common::Outcome<muster::v1::SubmitResponse> submit(const muster::v1::SubmitRequest& request) = 0;
  virtual muster::v1::ListResponse list(const muster::v1::ListRequest& request) = 0;
  virtual common::Outcome<muster::v1::Job> get(core::JobId id) = 0;
  /// With secrets, which get() masks.
  virtual common::Outcome<muster::v1::JobSpec> spec(core::JobId id) = 0;
  virtual common::Outcome<muster::v1::Job> cancel(core::JobId id, const std::string& user) = 0;
  virtual common::Outcome<muster::v1::Job> requeue(core::JobId id, const std::string& user) = 0;
  virtual common::Outcome<muster::v1::Job> hold(core::JobId id, const std::string& user) = 0;
  virtual common::Outcome<muster::v1::Job> release(core::JobId id, const std::string& user) = 0;
  virtual common::Outcome<muster::v1::Job> set_time_limit(core::JobId id, core::Millis limit,
                                                          const std::string& user) = 0;
  virtual common::Outcome<muster::v1::SubmitSweepResponse> submit_sweep(
      const muster::v1::SubmitSweepRequest& request) = 0;
  virtual common::Outcome<muster::v1::ChangeSweepResponse> change_sweep(
      const muster::v1::ChangeSweepRequest& request) = 0;
  virtual common::Outcome<muster::v1::RemoveResponse> remove(const muster::v1::RemoveRequest& request) = 0;
  virtual common::Outcome<muster::v1::WhyResponse> why(core::JobId id) = 0;
  /// Asks the ranks of a running training to record steps, or tells of an earlier request with the same number.
  virtual common::Outcome<muster::v1::TraceView> trace(const muster::v1::TraceRequest& request) = 0;
  /// Asks the ranks of a running attempt for their stacks, or tells of those that were kept. Ranks come without texts.
  virtual common::Outcome<muster::v1::StacksView> stacks(const muster::v1::StacksRequest& request) = 0;
  /// The stack of one rank; empty: it gave none, or there is no such job.
  virtual std::string stack_text(const core::AttemptKey& attempt, std::uint64_t number, core::RankNumber rank) = 0;
  /// The script the job's first attempt would be submitted with, and what Slurm says about it; nothing is stored.
  virtual common::Outcome<muster::v1::PlanScriptResponse> plan_script(const muster::v1::PlanScriptRequest& request) = 0;
  virtual common::Outcome<muster::v1::CheckScriptResponse> check_script(
      const muster::v1::PlanScriptRequest& request) = 0;
  // Admins
  virtual common::Outcome<muster::v1::ListPartitionsResponse> list_partitions(
      const muster::v1::ListPartitionsRequest& request) = 0;
  /// Durable and audited when it returns.
  virtual common::Outcome<muster::v1::PartitionView> set_partition(const muster::v1::SetPartitionRequest& request) = 0;
  virtual common::Outcome<muster::v1::RemovePartitionResponse> remove_partition(
      const muster::v1::RemovePartitionRequest& request) = 0;
  virtual common::Outcome<muster::v1::ListNodesResponse> list_nodes() = 0;
  /// The resources of musterd's own machine, and which attempts have them.
  virtual muster::v1::MachineView machine() = 0;
  /// Lets no attempt start before resume(). Durable and audited when it returns.
  virtual common::Outcome<muster::v1::DrainView> drain(const muster::v1::DrainRequest& request) = 0;
  virtual common::Outcome<muster::v1::DrainView> resume(const muster::v1::ResumeRequest& request) = 0;
  virtual muster::v1::ListAuditResponse list_audit(const muster::v1::ListAuditRequest& request) = 0;

  /// Oldest first; `job` 0: all. At most `limit`.
  virtual std::vector<muster::v1::Event> events(core::JobId job, std::int64_t after_id, std::uint32_t limit) = 0;
  virtual std::int64_t last_event_id() = 0;
  virtual store::Totals totals(std::int64_t after_event, std::uint32_t most_events) = 0;
  /// Steps after (after_attempt, after_step), in order. `attempt` 0: all.
  virtual std::vector<muster::v1::Metric> metrics(core::JobId id, core::AttemptNumber attempt,
                                                  core::AttemptNumber after_attempt, core::Step after_step,
                                                  std::uint32_t limit) = 0;
  /// The curves of a job in at most a few thousand points each.
  virtual store::Thinned thinned(const store::ThinRequest& request) = 0;
  /// The log file of a rank; empty if there is no such job or attempt. The file may not exist yet.
  virtual std::string log_path(core::JobId id, core::AttemptNumber attempt, core::RankNumber rank) = 0;
  /// The log of the scheduler and of the lines before an attempt's ranks; empty if no scheduler was given the attempt.
  virtual std::string scheduler_log_path(core::JobId id, core::AttemptNumber attempt) = 0;
  virtual muster::v1::StatusResponse status() = 0;

  /// Waits until anything about `job` (0: any job) changed since `seen`, at most `timeout`; returns the new change
  /// count. Changes are events, heartbeats that moved a step, and new metrics. First call: seen = 0.
  virtual std::uint64_t wait_change(core::JobId job, std::uint64_t seen, core::Millis timeout) = 0;
  /// The change count at the newest change of `job` (0: of any), or a later one if it isn't remembered. Never waits.
  virtual std::uint64_t newest_change(core::JobId job) { return wait_change(job, 0, core::Millis(0)); }

  // Ranks. `token` is the attempt's own.
  virtual common::Outcome<muster::v1::RegisterResponse> register_rank(const muster::v1::RegisterRequest& request,
                                                                      const std::string& token) = 0;
  virtual common::Outcome<muster::v1::HeartbeatResponse> heartbeat(const muster::v1::HeartbeatRequest& request,
                                                                   const std::string& token) = 0;
  /// The heartbeats of one rank, on one stream. `tell` is called from any thread.
  virtual common::Outcome<std::shared_ptr<ranks::RankStream>> open_stream(const muster::v1::RankKey& key,
                                                                          const std::string& token,
                                                                          ranks::TellRank tell) = 0;
  /// The stream of muster-agent, which stands beside a rank where a scheduler starts the ranks. Any thread calls
  /// `tell`.
  virtual common::Outcome<std::shared_ptr<ranks::TaskStream>> open_task_stream(const muster::v1::RankKey& key,
                                                                               const std::string& token,
                                                                               ranks::TellTask tell) = 0;
  /// Where rpc/ tells how late it reads; null: nobody asks.
  virtual common::Reading* reading() { return nullptr; }
  /// Answers at once, with an empty endpoint while rank 0 has not said where it listens: rpc/ does the waiting, without
  /// holding a thread a rank. It never waits itself.
  virtual common::Outcome<muster::v1::RendezvousResponse> rendezvous(const muster::v1::RendezvousRequest& request,
                                                                     const std::string& token) = 0;

  /// One request of muster-agent as a call.
  virtual common::Outcome<muster::v1::TaskResponse> task(const muster::v1::TaskRequest& request,
                                                         const std::string& token) = 0;
  /// The stack of a rank from the muster-agent beside it.
  virtual common::Outcome<muster::v1::KeepStackResponse> keep_stack(const muster::v1::KeepStackRequest& request,
                                                                    const std::string& token) = 0;

  /// True if `token` is the one people must show.
  virtual bool is_people_token(const std::string& token) const = 0;
  /// True if `token` is the one that this attempt's ranks must show. Only computes: asks no store.
  virtual bool is_rank_token(const core::AttemptKey& attempt, const std::string& token) const = 0;
  /// How many ranks each attempt of this job has; 0: the job is neither open nor among those that ended last. Asks no
  /// store.
  virtual std::uint32_t ranks_of(core::JobId job) const = 0;
};

}  // namespace service
