#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "fsdp/comm/device_mesh.h"
#include "fsdp/tracing/trace.h"
#include "worker/train/config.h"
#include "worker/train/trace_requests.h"

namespace worker {

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
