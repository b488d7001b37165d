#pragma once

#include <exception>
#include <utility>

#include "fsdp/optim/optimizer.h"

namespace worker {

/// From construction to end() the trained model has the averages of its weights, if train.average_decay asks for them.
/// Every rank must make it at the same time. No step and no save meanwhile. An exception that passes leaves the
/// averages there, because devices may be broken then; the next step refuses them.
class AveragedWeights {
 public:
  explicit AveragedWeights(fsdp::Optimizer& optimizer) : optimizer_(optimizer) {
    if (optimizer_.keeps_average()) optimizer_.exchange_average();
  }
  ~AveragedWeights() {
    if (std::uncaught_exceptions() == exceptions_) end();
  }
  AveragedWeights(const AveragedWeights&) = delete;
  AveragedWeights& operator=(const AveragedWeights&) = delete;

  void end() {
    if (!std::exchange(ended_, true) && optimizer_.keeps_average()) optimizer_.exchange_average();
  }

 private:
  fsdp::Optimizer& optimizer_;
  const int exceptions_ = std::uncaught_exceptions();
  bool ended_ = false;
};

}  // namespace worker
