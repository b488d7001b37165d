#pragma once

#include "service/controller.h"

namespace test {

/// A controller that refuses every call. Fakes override the calls that they expect, so that another call is noticed.
class UnscriptedController : public service::Controller {
 public:
  base::Outcome<muster::v1::Job> hold(core::JobId, const std::string&) override { return unscripted(); }
  base::Outcome<muster::v1::Job> release(core::JobId, const std::string&) override { return unscripted(); }
  base::Outcome<muster::v1::Job> set_time_limit(core::JobId, core::Millis, const std::string&) override {
    return unscripted();
  }
  base::Outcome<muster::v1::SubmitSweepResponse> submit_sweep(const muster::v1::SubmitSweepRequest&) override {
    return unscripted();
  }
  base::Outcome<muster::v1::ChangeSweepResponse> change_sweep(const muster::v1::ChangeSweepRequest&) override {
    return unscripted();
  }
  base::Outcome<muster::v1::WhyResponse> why(core::JobId) override { return unscripted(); }
  base::Outcome<muster::v1::RegisterResponse> register_rank(const muster::v1::RegisterRequest&,
                                                            const std::string&) override {
    return unscripted();
  }
  base::Outcome<muster::v1::HeartbeatResponse> heartbeat(const muster::v1::HeartbeatRequest&,
                                                         const std::string&) override {
    return unscripted();
  }
  base::Outcome<std::shared_ptr<ranks::TaskStream>> open_task_stream(const muster::v1::RankKey&, const std::string&,
                                                                     ranks::TellTask) override {
    return unscripted();
  }
  base::Outcome<std::shared_ptr<ranks::RankStream>> open_stream(const muster::v1::RankKey&, const std::string&,
                                                                ranks::TellRank) override {
    return unscripted();
  }
  base::Outcome<muster::v1::RendezvousResponse> rendezvous(const muster::v1::RendezvousRequest&,
                                                           const std::string&) override {
    return unscripted();
  }
  base::Outcome<muster::v1::TaskResponse> task(const muster::v1::TaskRequest&, const std::string&) override {
    return unscripted();
  }

 private:
  static base::Refusal unscripted() { return {base::Refusal::Kind::kUnavailable, "not scripted"}; }
};

}  // namespace test
