#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>

#include "agent/rank/reporter.h"
#include "data/order/random.h"
#include "fsdp/comm/device_mesh.h"
#include "fsdp/tracing/trace.h"
#include "worker/train/train_config.h"

namespace worker {

/// The seed of the random numbers that one rank draws in one step, such as dropout's masks. Each rank draws its own,
/// and a resumed run draws those of an uninterrupted one, at any world size.
constexpr std::uint64_t step_seed(std::int64_t seed, std::int64_t step, int rank) {
  const auto of_step =
      data::order::splitmix(data::order::splitmix(static_cast<std::uint64_t>(seed)) + static_cast<std::uint64_t>(step));
  return data::order::splitmix(of_step + static_cast<std::uint64_t>(rank) * data::order::kSplitmixStride);
}

/// Why a step's file is not there, or where it is.
struct WrittenTrace {
  std::filesystem::path file;
  std::string problem;  ///< empty: the file is complete
};

/// Records one step into a file, if train.trace_step and train.trace_steps or a request ask for it; see
/// fsdp/tracing/trace.h.
class StepTrace {
 public:
  /// `step` counts from 1. Begins the recording. `is_requested`: the controller asks for this step.
  StepTrace(const RunConfig& config, std::int64_t step, fsdp::DeviceMesh& mesh, bool is_requested);
  /// Ends the recording of a step that threw.
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  /// Ends the recording and writes the file; nullopt: nothing was recorded. Without a place for the file it says so on
  /// standard error, and the training goes on.
  std::optional<WrittenTrace> write();

  /// "trace/step-3.rank0.json" in the folder of the checkpoints.
  static std::filesystem::path file(const RunConfig& config, std::int64_t step, int rank);

 private:
  const RunConfig& config_;
  const std::int64_t step_;
  fsdp::DeviceMesh& mesh_;
  const std::string name_;
  bool records_ = false;
  std::optional<fsdp::Tracer::Scope> whole_;
};

/// The steps of this rank that the controller asks for while the training runs.
///
/// [Note: one step on all ranks] Ranks hear of a request in different steps. So in each step each rank says whether it
/// has heard of one, with its loss and its stop request ([Note: leaving together] in worker/train/run.h). Where one
/// has, the ranks tell each other their requests in the same step. All read the same words and begin with the same
/// later step. One rank that has heard is enough. While a request is under way the ranks pass on none.
///
/// A run that leaves before the last step of a request says nothing of it: the controller sees the end.
class TraceRequests {
 public:
  /// Only keeps the reference. `last_step` is the last step of the training.
  TraceRequests(agent::rank::Reporter& reporter, int rank, std::int64_t last_step)
      : reporter_(reporter), rank_(rank), last_step_(last_step) {}

  /// Returns the request that this rank passes on in this step; number 0: nothing.
  agent::rank::TraceWish wish() const;
  /// Takes the request that all ranks have read in step `step`, counted from 1. All ranks must give the same one.
  void agreed(std::int64_t step, const agent::rank::TraceWish& wish);
  /// True if a request asks for this step.
  bool records(std::int64_t step) const;
  /// The step's file was written, or not. Steps that nobody has asked for are left out.
  void wrote(std::int64_t step, const WrittenTrace& written);

 private:
  /// A rank that hears of a request late must not take it for a new one.
  static constexpr std::size_t kRemembered = 16;
  bool is_known(std::uint64_t number) const;
  void tell();

  agent::rank::Reporter& reporter_;
  const int rank_;
  const std::int64_t last_step_;
  std::optional<agent::rank::TraceReport> now_;  // the request under way
  std::deque<std::uint64_t> known_;
};

}  // namespace worker
