#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace worker {

double learning_rate(const schema::Training& c, std::int64_t step) {
  if (step < c.warmup_steps) {
    return c.learning_rate * static_cast<double>(step + 1) / static_cast<double>(c.warmup_steps);
  }
  if (c.schedule == schema::LearningRateSchedule::kConstant) return c.learning_rate;
  const auto span = static_cast<double>(std::max<std::int64_t>(1, c.steps - c.warmup_steps));
  const double done = std::min(1.0, static_cast<double>(step - c.warmup_steps) / span);
  const double left = c.schedule == schema::LearningRateSchedule::kLinear
                          ? 1.0 - done
                          : 0.5 * (1.0 + std::cos(std::numbers::pi * done));
  return c.min_learning_rate + (c.learning_rate - c.min_learning_rate) * left;
}

}  // namespace worker
