#pragma once

#include <ATen/core/grad_mode.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/rank/reporter.h"
#include "fsdp/comm/device_mesh.h"
#include "fsdp/optim/optimizers.h"
#include "worker/batch/batch.h"
#include "worker/train/train_config.h"
#include "worker/train/train_parts.h"

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

/// One evaluation of a model by all ranks, and what they found together.
///
/// While the object lives, the parts' modules are in evaluation mode, no gradients are recorded on this thread, and the
/// trained model has its averaged weights, if it has such.
class Evaluation {
 public:
  /// `validation` may be null: then each() does nothing. All arguments must outlive the object.
  Evaluation(const RunConfig& config, const BatchSplit& split, Parts& parts, const BatchSource* validation);
  ~Evaluation();
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;

  const RunConfig& config() const { return config_; }
  fsdp::DeviceMesh& mesh() { return parts_.mesh(); }
  Parts& parts() { return parts_; }

  /// Samples that a rank computes at once.
  std::int64_t micro_batch_size() const { return split_.micro_batch_size; }
  /// How many samples of the validation data are looked at, the first ones: train.validation_batches total batches, or
  /// all. They are the same in every evaluation and at every world size.
  std::int64_t samples() const;
  /// This rank's share of samples(), in micro-batches on the model's device. Every rank makes the same number of calls:
  /// a rank without samples left gets one that does not count (`counts` is false).
  void each(const std::function<void(const Batch& batch, bool counts)>& measure);

  /// Adds to the sum and the weight of a series, whose value is the sum of all ranks over the weight of all ranks.
  void add(std::string_view series, double sum, double weight);
  /// The value of a series so far, over all ranks. Collective.
  double value(std::string_view series);
  /// Adds counts to a tally of this name, such as a confusion table. All ranks give equally many.
  void add(std::string_view tally, std::span<const std::int64_t> counts);
  /// The sum of a tally over all ranks. Collective.
  std::vector<std::int64_t> agreed(std::string_view tally);
  /// Sets the value of a series, which all ranks know.
  void set(std::string_view series, double value);

  /// The values of all series, in the order in which they came. Collective.
  std::vector<agent::rank::SeriesValue> finish();

 private:
  struct Mean {
    std::string series;
    double sum = 0, weight = 0;
    bool is_set = false;
  };
  Mean& mean(std::string_view series);

  const RunConfig& config_;
  const BatchSplit& split_;
  Parts& parts_;
  const BatchSource* validation_;
  AveragedWeights averaged_{parts_.optimizer()};  // put back at the end, also after an exception
  const at::NoGradGuard no_grad_;
  std::vector<Mean> means_;
  std::map<std::string, std::vector<std::int64_t>, std::less<>> tallies_;
};

}  // namespace worker
