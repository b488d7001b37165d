#pragma once

#include "controller/service/controller.h"

namespace test {

using common::Outcome;
using common::Refusal;
namespace v1 = muster::v1;

/// A controller that refuses every call. Fakes override the calls that they expect, so that another call is noticed.
class UnscriptedController : public service::Controller {
 public:
  Outcome<v1::Job> hold(core::JobId, const std::string&) override { return unscripted(); }
  Outcome<v1::Job> release(core::JobId, const std::string&) override { return unscripted(); }
  Outcome<v1::Job> set_time_limit(core::JobId, core::Millis, const std::string&) override { return unscripted(); }
  Outcome<v1::SubmitSweepResponse> submit_sweep(const v1::SubmitSweepRequest&) override { return unscripted(); }
  Outcome<v1::ChangeSweepResponse> change_sweep(const v1::ChangeSweepRequest&) override { return unscripted(); }
  Outcome<v1::JobSpec> spec(core::JobId id) override { return Refusal::no_job(id); }
  Outcome<v1::RemoveResponse> remove(const v1::RemoveRequest&) override { return unscripted(); }
  Outcome<v1::TraceView> trace(const v1::TraceRequest&) override { return unscripted(); }
  Outcome<v1::PlanScriptResponse> plan_script(const v1::PlanScriptRequest&) override { return common::no_slurm({}); }
  Outcome<v1::CheckScriptResponse> check_script(const v1::PlanScriptRequest&) override { return common::no_slurm({}); }
  Outcome<v1::ListPartitionsResponse> list_partitions(const v1::ListPartitionsRequest&) override {
    return common::no_slurm({});
  }
  Outcome<v1::PartitionView> set_partition(const v1::SetPartitionRequest&) override { return common::no_slurm({}); }
  Outcome<v1::RemovePartitionResponse> remove_partition(const v1::RemovePartitionRequest&) override {
    return common::no_slurm({});
  }
  Outcome<v1::ListNodesResponse> list_nodes() override { return common::no_slurm({}); }
  v1::MachineView machine() override { return {}; }
  Outcome<v1::DrainView> drain(const v1::DrainRequest&) override { return unscripted(); }
  Outcome<v1::DrainView> resume(const v1::ResumeRequest&) override { return unscripted(); }
  v1::ListAuditResponse list_audit(const v1::ListAuditRequest&) override { return {}; }
  store::Thinned thinned(const store::ThinRequest&) override { return {}; }
  std::string scheduler_log_path(core::JobId, core::AttemptNumber) override { return {}; }
  Outcome<v1::WhyResponse> why(core::JobId) override { return unscripted(); }
  Outcome<v1::RegisterResponse> register_rank(const v1::RegisterRequest&, const std::string&) override {
    return unscripted();
  }
  Outcome<v1::HeartbeatResponse> heartbeat(const v1::HeartbeatRequest&, const std::string&) override {
    return unscripted();
  }
  Outcome<std::shared_ptr<ranks::TaskStream>> open_task_stream(const v1::RankKey&, const std::string&,
                                                               ranks::TellTask) override {
    return unscripted();
  }
  Outcome<std::shared_ptr<ranks::RankStream>> open_stream(const v1::RankKey&, const std::string&,
                                                          ranks::TellRank) override {
    return unscripted();
  }
  Outcome<v1::RendezvousResponse> rendezvous(const v1::RendezvousRequest&, const std::string&) override {
    return unscripted();
  }
  Outcome<v1::StacksView> stacks(const v1::StacksRequest&) override { return unscripted(); }
  std::string stack_text(const core::AttemptKey&, std::uint64_t, core::RankNumber) override { return {}; }
  Outcome<v1::KeepStackResponse> keep_stack(const v1::KeepStackRequest&, const std::string&) override {
    return unscripted();
  }
  Outcome<v1::TaskResponse> task(const v1::TaskRequest&, const std::string&) override { return unscripted(); }
  std::uint32_t ranks_of(core::JobId) const override { return 0; }

 private:
  static Refusal unscripted() { return {Refusal::Kind::kUnavailable, "not scripted"}; }
};

}  // namespace test
