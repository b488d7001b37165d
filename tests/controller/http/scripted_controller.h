#pragma once

#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tests/controller/store/memory_store.h"
#include "tests/controller/unscripted_controller.h"

/// A controller that answers what a test has scripted: jobs, events and metrics in memory, logs in a folder. It refuses
/// and performs cancel and requeue by the rules of the real controller. Thread-safe.
class ScriptedController : public test::UnscriptedController {
 public:
  static constexpr const char* kToken = "the-people-token";

  explicit ScriptedController(std::filesystem::path logs) : logs_(std::move(logs)) {}

  // A test calls these.
  void put(const muster::v1::Job& job);
  std::int64_t add_event(core::JobId job, const std::string& type, const std::string& text);
  void add_metric(core::JobId job, const muster::v1::Metric& metric);
  void append_log(core::JobId job, core::AttemptNumber attempt, core::RankNumber rank, const std::string& text);
  /// Stacks of a job, with the texts of its ranks. Whoever asks for new ones gets these.
  void put_stacks(const muster::v1::StacksView& view);
  /// Sets the problems of the store and of the scheduler that the status tells; empty: all is well.
  void set_problems(const std::string& store, const std::string& scheduler);
  /// From now on every call waits until it is let go, as with a disk that hangs.
  void hang();
  void let_go();
  /// The submissions so far; a sweep's jobs are in one.
  std::vector<muster::v1::SubmitSweepRequest> submissions();
  /// The next submissions are refused with this.
  void refuse_submissions(const common::Refusal& refusal);

  common::Outcome<muster::v1::SubmitResponse> submit(const muster::v1::SubmitRequest& request) override;
  common::Outcome<muster::v1::SubmitSweepResponse> submit_sweep(const muster::v1::SubmitSweepRequest& request) override;
  common::Outcome<muster::v1::ChangeSweepResponse> change_sweep(const muster::v1::ChangeSweepRequest& request) override;
  common::Outcome<muster::v1::Job> set_time_limit(core::JobId id, core::Millis limit, const std::string& user) override;
  common::Outcome<muster::v1::RemoveResponse> remove(const muster::v1::RemoveRequest& request) override;
  muster::v1::ListResponse list(const muster::v1::ListRequest& request) override;
  common::Outcome<muster::v1::Job> get(core::JobId id) override;
  common::Outcome<muster::v1::Job> cancel(core::JobId id, const std::string& user) override;
  common::Outcome<muster::v1::Job> requeue(core::JobId id, const std::string& user) override;
  common::Outcome<muster::v1::Job> hold(core::JobId id, const std::string& user) override;
  common::Outcome<muster::v1::Job> release(core::JobId id, const std::string& user) override;
  common::Outcome<muster::v1::WhyResponse> why(core::JobId id) override;
  common::Outcome<muster::v1::StacksView> stacks(const muster::v1::StacksRequest& request) override;
  std::string stack_text(const core::AttemptKey& attempt, std::uint64_t number, core::RankNumber rank) override;
  std::vector<muster::v1::Event> events(core::JobId job, std::int64_t after_id, std::uint32_t limit) override;
  std::int64_t last_event_id() override;
  store::Totals totals(std::int64_t after_event, std::uint32_t most_events) override;
  std::vector<muster::v1::Metric> metrics(core::JobId id, core::AttemptNumber attempt,
                                          core::AttemptNumber after_attempt, core::Step after_step,
                                          std::uint32_t limit) override;
  store::Thinned thinned(const store::ThinRequest& request) override;
  std::string log_path(core::JobId id, core::AttemptNumber attempt, core::RankNumber rank) override;
  muster::v1::StatusResponse status() override;
  std::uint64_t wait_change(core::JobId job, std::uint64_t seen, core::Millis timeout) override;

  bool is_people_token(const std::string& token) const override { return token == kToken; }
  bool is_rank_token(const core::AttemptKey&, const std::string&) const override { return false; }

 private:
  std::unique_lock<std::mutex> lock();
  std::int64_t store_event(const std::string& type, const std::string& text, muster::v1::Job& job);
  void changed();

  const std::filesystem::path logs_;
  std::mutex mutex_;
  std::condition_variable change_;
  std::condition_variable released_;
  bool held_ = false;
  std::uint64_t changes_ = 1;
  std::map<core::JobId, muster::v1::Job> jobs_;
  std::map<core::JobId, std::vector<muster::v1::Metric>> metrics_;
  store::MemoryStore curves_;  // the same steps
  std::map<core::JobId, muster::v1::StacksView> stacks_;
  std::vector<muster::v1::Event> events_;
  std::vector<muster::v1::SubmitSweepRequest> submissions_;
  std::map<std::string, core::JobId> requests_;
  std::optional<common::Refusal> refusal_;
  std::string store_problem_, scheduler_problem_;
};
