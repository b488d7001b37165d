#pragma once

#include <cstdint>

#include "train/config.h"

namespace worker {

/// The learning rate of the step after `step` finished ones: a linear warm-up that reaches learning_rate with step
/// number warmup_steps, then cosine or linear decay that would reach min_learning_rate at `steps`, or constant.
double learning_rate(const schema::Training& config, std::int64_t step);

}  // namespace worker
