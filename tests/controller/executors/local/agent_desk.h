#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "controller/executors/executor.h"
#include "controller/ranks/rank_streams.h"
#include "controller/rpc/rpc_server.h"
#include "tests/claimed_port.h"
#include "tests/controller/rpc/fake_controller.h"

namespace test {

/// The controller's end of the links of agents: hands what they tell to an executor, as the ranks' sessions of musterd
/// do, and tells them of stops. It may go away and come back at the same port. Thread-safe.
class AgentDesk : public rpc::testing::FakeController {
 public:
  using Use = std::map<core::RankNumber, muster::v1::RankUse>;

  AgentDesk() { come_back(); }
  ~AgentDesk() override { go_away(); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_.number()); }
  void go_away() { server_.reset(); }
  void come_back() { server_ = rpc::serve(*this, port_.on("127.0.0.1")); }

  /// Null: nobody listens.
  void hand_to(executors::Executor* executor) {
    const std::lock_guard lock(executor_mutex_);
    executor_ = executor;
  }
  /// From here on the agent of this attempt is told to stop its ranks. musterd's word becomes only stricter, since an
  /// agent that is busy hears the newest one alone.
  void stop(const core::AttemptKey& key, const executors::StopRequest& how) {
    const std::lock_guard lock(mutex_);
    const auto [known, is_new] = stops_.try_emplace(key, how);
    if (!is_new && how.grace < known->second.grace) known->second = how;
    for (const auto& [stream, who] : tellers_) {
      if (who.first == key) who.second(answer(key, 0));
    }
  }
  Use used(const core::AttemptKey& key) const {
    const std::lock_guard lock(mutex_);
    const auto found = used_.find(key);
    return found == used_.end() ? Use{} : found->second;
  }
  void forget_use() {
    const std::lock_guard lock(mutex_);
    used_.clear();
  }

  common::Outcome<std::shared_ptr<ranks::TaskStream>> open_task_stream(const muster::v1::RankKey& key,
                                                                       const std::string&,
                                                                       ranks::TellTask tell) override {
    const core::AttemptKey attempt{key.job_id(), key.attempt()};
    auto stream = std::make_shared<Stream>(*this, attempt);
    const std::lock_guard lock(mutex_);
    tellers_[stream.get()] = {attempt, std::move(tell)};
    return std::shared_ptr<ranks::TaskStream>(stream);
  }
  std::uint32_t ranks_of(core::JobId) const override { return 4096; }

 private:
  class Stream : public ranks::TaskStream {
   public:
    Stream(AgentDesk& desk, const core::AttemptKey& key) : desk_(desk), key_(key) {}
    common::Outcome<bool> beat(const muster::v1::TaskRequest& request) override {
      desk_.heard(key_, request);
      const std::lock_guard lock(desk_.mutex_);
      const auto found = desk_.tellers_.find(this);
      if (found != desk_.tellers_.end()) found->second.second(desk_.answer(key_, ++heard_));
      return false;
    }
    void close() override {
      const std::lock_guard lock(desk_.mutex_);
      desk_.tellers_.erase(this);
    }

   private:
    AgentDesk& desk_;
    const core::AttemptKey key_;
    std::uint64_t heard_ = 0;
  };

  void heard(const core::AttemptKey& key, const muster::v1::TaskRequest& request) {
    {
      const std::lock_guard lock(mutex_);
      if (request.has_use()) used_[key][request.key().rank()] = request.use();
    }
    if (request.state() != muster::v1::PROCESS_EXITED) return;
    const executors::TaskReport report{.process = executors::TaskReport::Process::kExited,
                                       .node = request.node(),
                                       .pid = request.pid(),
                                       .exit = {request.exit_code(), request.signal()},
                                       .out_of_memory = request.out_of_memory(),
                                       .signals_seen = {},
                                       .trouble = request.trouble(),
                                       .ended_at = core::Millis(request.ended_at_ms()),
                                       .error = request.error()};
    const std::lock_guard lock(executor_mutex_);
    if (executor_ != nullptr) executor_->task(key, request.key().rank(), report);
  }
  /// With the lock held.
  muster::v1::TaskResponse answer(const core::AttemptKey& key, std::uint64_t heard) const {
    muster::v1::TaskResponse response;
    response.set_interval_ms(50);
    response.set_requests_heard(heard);
    const auto found = stops_.find(key);
    if (found == stops_.end()) return response;
    const auto& how = found->second;
    response.set_directive(how.save ? muster::v1::DIRECTIVE_SAVE_AND_LEAVE : muster::v1::DIRECTIVE_STOP);
    response.set_stop_why(how.why);
    response.set_stop_grace_ms(how.grace.count());
    if (how.at_step) response.set_stop_at_step(*how.at_step);
    return response;
  }

  ClaimedPort port_;
  mutable std::mutex mutex_;
  std::map<core::AttemptKey, executors::StopRequest> stops_;
  std::map<core::AttemptKey, Use> used_;
  std::map<const void*, std::pair<core::AttemptKey, ranks::TellTask>> tellers_;
  std::mutex executor_mutex_;
  executors::Executor* executor_ = nullptr;
  std::unique_ptr<rpc::Server> server_;
};

}  // namespace test
