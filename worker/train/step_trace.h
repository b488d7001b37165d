#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "data/order/random.h"
#include "fsdp/comm/device_mesh.h"
#include "fsdp/tracing/trace.h"
#include "worker/train/step_trace_requests.h"
#include "worker/train/train_config.h"

namespace worker {

/// The seed of the random numbers that one rank draws in one step, such as dropout's masks. Each rank draws its own,
/// and a resumed run draws those of an uninterrupted one, at any world size.
constexpr std::uint64_t step_seed(std::int64_t seed, std::int64_t step, int rank) {
  const auto of_step =
      data::order::splitmix(data::order::splitmix(static_cast<std::uint64_t>(seed)) + static_cast<std::uint64_t>(step));
  return data::order::splitmix(of_step + static_cast<std::uint64_t>(rank) * data::order::kSplitmixStride);
}

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

}  // namespace worker
