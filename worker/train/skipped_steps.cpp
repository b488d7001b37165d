#include "worker/train/skipped_steps.h"

#include <cmath>

#include "base/usage_error.h"

namespace worker {

bool SkippedSteps::note(std::int64_t step, double loss, double grad_norm, bool scale_falls) {
  if (std::isfinite(grad_norm)) {
    in_a_row_ = 0;
    return false;
  }
  const std::string what = "step " + std::to_string(step) + " is skipped: the loss is " + std::to_string(loss) +
                           " and the gradient's norm " + std::to_string(grad_norm);
  if (scale_falls && std::isfinite(loss)) {
    ++total_;
    line_ = what + "; the scale of the loss falls";
    return true;
  }
  if (++in_a_row_ > most_in_a_row_) {
    throw base::UsageError(what + "; so it was in " + std::to_string(in_a_row_) +
                           " steps in a row, and train.max_skipped_steps is " + std::to_string(most_in_a_row_) +
                           "; lower train.learning_rate or lengthen train.warmup_steps");
  }
  ++total_;
  line_ = what + " (" + std::to_string(in_a_row_) + " in a row, at most " + std::to_string(most_in_a_row_) + ")";
  return true;
}

}  // namespace worker
