#pragma once

#include <cstdint>
#include <string>

namespace worker {

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

  /// Whether the step was skipped: the optimizer does so when the gradient's norm is not finite. All ranks pass the
  /// same numbers. `scale_falls`: the loss is scaled, and the scale may still fall when gradients overflow. A loss that
  /// is not finite itself counts in the row even so. Throws base::UsageError when there were too many in a row.
  bool note(std::int64_t step, double loss, double grad_norm, bool scale_falls = false);

  /// Of the whole run.
  std::int64_t total() const { return total_; }
  /// What to say of the newest: "step 7 is skipped: the loss is nan ...".
  const std::string& line() const { return line_; }

 private:
  std::int64_t most_in_a_row_, total_;
  std::int64_t in_a_row_ = 0;
  std::string line_;
};

}  // namespace worker
