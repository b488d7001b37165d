#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/rank/reporter.h"
#include "tests/worker/temporary_folder.h"
#include "worker/recipes/registry.h"
#include "worker/train/run.h"
#include "worker/train/train_config.h"

namespace worker::testing {

/// Called before each rename in this process, with the new name.
extern std::function<void(const std::string&)> before_rename;
/// Called before each flush to disk, with the name of the flushed file or folder.
extern std::function<void(const std::string&)> before_sync;

/// Keeps what its rank reports.
class Listener : public agent::rank::Reporter {
 public:
  void section(agent::rank::Section) override {}
  void declare(std::vector<spec::Series> series) override { declared.push_back(std::move(series)); }
  void step(const agent::rank::StepReport& report) override {
    steps.push_back(report);
    if (on_step) on_step();
  }
  void program(const agent::rank::ProgramWords& said) override { words = said; }
  void resumed_from(std::int64_t) override {
    if (on_resumed) on_resumed();
  }
  void checkpoint_saved(std::int64_t step, std::int64_t, double) override { saved.push_back(step); }
  std::optional<agent::rank::TraceWish> trace_requested() const override {
    return on_trace ? on_trace(asked_) : std::nullopt;
  }
  void trace(const agent::rank::TraceReport& report) override { traces.push_back(report); }
  agent::rank::StopKind stop_requested() const override {
    return ++asked_ == save_at ? agent::rank::StopKind::kSave : agent::rank::StopKind::kNone;
  }
  bool assigns_rendezvous() const override { return true; }
  agent::rank::Endpoint rendezvous(std::optional<agent::rank::Endpoint> mine) override {
    if (mine) meeting->set_value(*mine);
    return where.get();
  }
  void leaving(int, std::string_view) override {}

  std::vector<std::vector<spec::Series>> declared;
  std::vector<agent::rank::StepReport> steps;
  agent::rank::ProgramWords words;
  std::vector<std::int64_t> saved;
  std::vector<agent::rank::TraceReport> traces;
  std::function<void()> on_step, on_resumed;
  /// The trace that the controller asks this rank to record, as heard in this step of the attempt, from 1.
  std::function<std::optional<agent::rank::TraceWish>(int step)> on_trace;
  std::function<void(const std::string&)> on_failure;      ///< if empty, a failure ends the test
  int save_at = 0;                                         ///< the step in which this rank asks for a save; 0: never
  std::promise<agent::rank::Endpoint>* meeting = nullptr;  ///< the endpoint, shared by all ranks
  std::shared_future<agent::rank::Endpoint> where;

 private:
  mutable int asked_ = 0;
};

/// Members of "train" and "fsdp" are added with a leading comma.
RunConfig run_of(const TemporaryFolder& folder, const std::string& train, const std::string& fsdp = "",
                 const std::string& checkpoints = "checkpoints");

/// Runs one attempt of `listeners.size()` ranks. Returns how each rank left.
std::vector<Outcome> train(const RunConfig& config, std::vector<Listener>& listeners, std::int64_t attempt = 1,
                           const MakeRecipe& make_recipe = worker::make_recipe);

/// The steps of these reports.
std::vector<std::int64_t> numbers(const std::vector<agent::rank::StepReport>& reports);

}  // namespace worker::testing
