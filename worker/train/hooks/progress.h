#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "worker/train/hooks/hook.h"

namespace worker {

/// Says in the log how far a training is and how long it will take: "12 % of 400 steps, epoch 0.43, about 3m20s left".
/// At most once in kPause, from the second step of an attempt on. The time left counts what came between the steps,
/// such as evaluations and saves, and none for what the first step needs beside its work.
class Progress : public Hook {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kPause{30};

  struct Options {
    std::int64_t steps = 1;                       ///< of the whole training
    double epochs_a_step = 0;                     ///< passes over the data that one step makes
    std::function<void(const std::string&)> say;  ///< writes a line of the log
    std::function<Clock::time_point()> now = [] { return Clock::now(); };
  };
  explicit Progress(Options options);

  void step(const agent::rank::StepReport& report, bool evaluated) override;

 private:
  const Options options_;
  std::int64_t first_ = -1;  // the first told step of this attempt
  Clock::time_point began_, said_;
};

/// "3m20s", "2h05m", "12s".
std::string time_text(std::chrono::seconds time);

}  // namespace worker
