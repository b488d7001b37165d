#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rank/reporter.h"

namespace worker {

/// What LibTorch's allocator of a GPU says of this process.
struct GpuMemory {
  std::int64_t peak_bytes = 0;      ///< the most that tensors took at one time, since the process began
  std::int64_t reserved_bytes = 0;  ///< what the allocator holds now, used or not
};

/// The measurements of one optimizer step over all ranks: the series that schema/recipes.cpp declares for every recipe.
struct StepMeasures {
  double loss = 0;                                       ///< mean over the total batch, in the recipe's unit
  std::optional<double> validation_loss = std::nullopt;  ///< absent: not measured at this step
  double tokens_per_s = 0;
  double learning_rate = 0;
  double grad_norm = 0;                                ///< before clipping
  std::optional<double> loss_scale = std::nullopt;     ///< absent: the loss is not scaled
  std::int64_t skipped_steps = 0;                      ///< of the run so far; told once there is one
  std::optional<GpuMemory> gpu_memory = std::nullopt;  ///< absent on the CPU

  /// The measured values, by the names of their series.
  std::vector<SeriesValue> values() const;
};

/// The value of this series; nullopt if the list does not have it.
std::optional<double> value_of(const std::vector<SeriesValue>& values, std::string_view series);

/// The log line of a step: "step 3/10 loss 2.302585 ... memory_mib 512".
std::string line_of(const StepReport& report, const StepMeasures& measures, std::int64_t steps);

}  // namespace worker
