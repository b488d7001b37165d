#pragma once

#include <cstdint>

#include "train/config.h"

namespace worker {

/// The learning rate of the step after `step` finished ones. A linear warm-up reaches learning_rate at step number
/// warmup_steps. Then the rate stays constant, or decays by a cosine or a line that would reach min_learning_rate at
/// `steps`.
double learning_rate(const schema::Training& config, std::int64_t step);

}  // namespace worker
