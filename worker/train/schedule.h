#pragma once

#include <cstdint>

#include "worker/train/config.h"

namespace worker {

/// The learning rate of the step after `step` finished ones. A linear warm-up reaches learning_rate at step number
/// warmup_steps. Then the rate stays constant, or decays by a cosine or a line that would reach min_learning_rate at
/// `steps`, or is multiplied by gamma after each step_size steps and stays above min_learning_rate.
double learning_rate(const spec::Training& config, std::int64_t step);

/// The weight decay of the step after `step` finished ones. It goes from weight_decay by a cosine or a line that would
/// reach final_weight_decay at `steps`, or stays constant. There is no warm-up.
double weight_decay(const spec::Optimizer& optimizer, const spec::Training& config, std::int64_t step);

/// Whether the model is evaluated after this step: at multiples of validation_every_steps, at the first step that
/// reaches a multiple of validation_every_epochs, and at the last step if it is evaluated at all.
bool evaluates(const spec::Training& config, double epochs_a_step, std::int64_t step);

}  // namespace worker
