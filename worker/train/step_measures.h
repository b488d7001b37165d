#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/rank/reporter.h"

namespace worker {

/// Figures that LibTorch's allocator of a GPU gives for this process.
struct GpuMemory {
  std::int64_t peak_bytes = 0;      ///< the most that tensors took at one time, since the process began
  std::int64_t reserved_bytes = 0;  ///< what the allocator holds now, used or not
};

/// The measurements of one optimizer step over all ranks: the series that spec/recipes.cpp declares for every recipe.
struct StepMeasures {
  double loss = 0;                                  ///< mean over the total batch, in the recipe's unit
  std::vector<agent::rank::SeriesValue> more = {};  ///< the recipe's further series of a step
  std::vector<agent::rank::SeriesValue> evaluated =
      {};  ///< what an evaluation after this step found; empty: there was none
  std::optional<double> tokens_per_s = std::nullopt;   ///< without padding; absent: the data have no tokens
  std::optional<double> samples_per_s = std::nullopt;  ///< told where there are no tokens
  double learning_rate = 0;
  double grad_norm = 0;                                ///< before clipping
  std::optional<double> loss_scale = std::nullopt;     ///< absent: the loss is not scaled
  std::int64_t skipped_steps = 0;                      ///< of the run so far; told once there is one
  std::optional<GpuMemory> gpu_memory = std::nullopt;  ///< absent on the CPU
  /// How long this rank's thread stood in collectives: communication that computation does not hide. Absent with one
  /// rank, and with NCCL, for which only the device waits.
  std::optional<double> wait_ms = std::nullopt;
  /// How long this rank waited for the batches of the step.
  std::optional<double> data_wait_ms = std::nullopt;
  /// Sent by this rank: in all-gathers of parameters, and in reduce-scatters of gradients. Absent with one rank.
  std::optional<std::int64_t> gathered_bytes = std::nullopt, scattered_bytes = std::nullopt;
  /// The most that tensors of this rank took at one time in the step. Absent on GPUs: gpu_memory.
  std::optional<std::int64_t> tensor_peak_bytes = std::nullopt;

  /// The measured values, by the names of their series.
  std::vector<agent::rank::SeriesValue> values() const;
};

/// The value of this series; nullopt if the list does not have it.
std::optional<double> value_of(const std::vector<agent::rank::SeriesValue>& values, std::string_view series);

/// Bytes of a rank's tensors that stay from step to step.
struct KeptTensors {
  std::int64_t parameters = 0;  ///< masters in fp32, and frozen values
  std::int64_t gradients = 0;   ///< reduced ones, unless they lie in the pool
  std::int64_t states = 0;      ///< of the optimizer
  std::int64_t pool = 0;        ///< of gathered parameters and unreduced gradients
};

/// The log line of what a rank's tensors take: "tensors: parameters 12.0 MiB, ...". `peak_bytes`: of a step.
std::string line_of(const KeptTensors& kept, std::optional<std::int64_t> peak_bytes);

/// The log line of a step: "step 3/10 loss 2.302585 ... memory_mib 512".
std::string line_of(const agent::rank::StepReport& report, const StepMeasures& measures, std::int64_t steps);

/// Counts steps whose gradients are not finite. Such a step changes no weight: an overflow or a spike passes, and one
/// batch is lost. Many in a row do not pass by themselves.
///
/// In fp16 the scale of the loss is found by such steps: the gradients overflow, the scale falls, and the next step
/// fits. Such a step counts, but not in the row.
class SkippedSteps {
 public:
  /// `most_in_a_row`: as many are skipped before the run ends; 0: none is. `total`: of the run before.
  explicit SkippedSteps(std::int64_t most_in_a_row, std::int64_t total = 0)
      : most_in_a_row_(most_in_a_row), total_(total) {}

  /// Returns true if the step was skipped: the optimizer does so when the gradient's norm is not finite. All ranks pass
  /// the same numbers. `scale_falls`: the loss is scaled, and the scale may still fall when gradients overflow. A loss
  /// that is not finite itself counts in the row even so. Throws base::UsageError when there were too many in a row.
  bool note(std::int64_t step, double loss, double grad_norm, bool scale_falls = false);

  /// Skipped steps of the whole run.
  std::int64_t total() const { return total_; }
  /// The text to say of the newest skipped step: "step 7 is skipped: the loss is nan ...".
  const std::string& line() const { return line_; }

 private:
  std::int64_t most_in_a_row_, total_;
  std::int64_t in_a_row_ = 0;
  std::string line_;
};

}  // namespace worker
