#include "worker/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace worker {
namespace {

/// What a schedule from 1 to 0 has left after `done` of `span` steps.
double left_of_line(std::int64_t done, std::int64_t span) {
  return 1.0 - std::min(1.0, static_cast<double>(done) / static_cast<double>(std::max<std::int64_t>(1, span)));
}

double left_of_cosine(std::int64_t done, std::int64_t span) {
  return 0.5 * (1.0 - std::cos(std::numbers::pi * left_of_line(done, span)));
}

double between(double last, double first, double left) {
  return last + (first - last) * left;
}

}  // namespace

double learning_rate(const spec::Training& c, std::int64_t step) {
  if (step < c.warmup_steps) {
    return c.learning_rate * static_cast<double>(step + 1) / static_cast<double>(c.warmup_steps);
  }
  const std::int64_t done = step - c.warmup_steps, span = c.steps - c.warmup_steps;
  switch (c.schedule) {
    case spec::LearningRateSchedule::kConstant:
      break;
    case spec::LearningRateSchedule::kCosine:
      return between(c.min_learning_rate, c.learning_rate, left_of_cosine(done, span));
    case spec::LearningRateSchedule::kLinear:
      return between(c.min_learning_rate, c.learning_rate, left_of_line(done, span));
    case spec::LearningRateSchedule::kStep:
      return std::max(c.min_learning_rate,
                      c.learning_rate * std::pow(c.gamma, static_cast<double>(done / c.step_size)));
  }
  return c.learning_rate;
}

double weight_decay(const spec::Optimizer& o, const spec::Training& c, std::int64_t step) {
  switch (o.weight_decay_schedule) {
    case spec::WeightDecaySchedule::kConstant:
      break;
    case spec::WeightDecaySchedule::kCosine:
      return between(o.final_weight_decay, o.weight_decay, left_of_cosine(step, c.steps));
    case spec::WeightDecaySchedule::kLinear:
      return between(o.final_weight_decay, o.weight_decay, left_of_line(step, c.steps));
  }
  return o.weight_decay;
}

bool evaluates(const spec::Training& c, double epochs_a_step, std::int64_t step) {
  const std::int64_t every = c.validation_every_steps;
  if (every == 0 && c.validation_every_epochs == 0) return false;
  const auto periods = [&](std::int64_t steps) {
    return std::floor(static_cast<double>(steps) * epochs_a_step / c.validation_every_epochs);
  };
  const bool by_epochs = c.validation_every_epochs > 0 && periods(step) > periods(step - 1);
  return step == c.steps || by_epochs || (every > 0 && step % every == 0);
}

}  // namespace worker
