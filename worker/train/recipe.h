#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/rank/environment.h"
#include "fsdp/files/export.h"
#include "fsdp/text/json.h"
#include "worker/batch/batch.h"
#include "worker/train/train_config.h"
#include "worker/train/train_parts.h"

namespace worker {

class Evaluation;

enum class Split { kTrain, kValidation };

/// The data of a run, once they are open.
struct RunData {
  /// Identifies the data. Ranks with different data must not train together, and a run must not continue with others.
  std::string fingerprint;
  std::string name;                    ///< for people
  std::string note = {};               ///< about the data's origin, for people; usually empty
  std::int64_t tokens_per_sample = 0;  ///< 0: samples differ, or have none
};

/// Losses that a batch's forward gives.
struct Losses {
  /// The sum of the losses of the batch's targets, a scalar for backward. Over all ranks and micro-batches of a step,
  /// the sum of all losses divided by the sum of all weights (Batch::weight) is the mean that is trained on.
  at::Tensor sum;
  /// Sums of what else is reported for each step, scalars in the order of step_series(). Their means have the same
  /// weight.
  std::vector<at::Tensor> more = {};
};

/// A kind of training: its data, models and loss. The loop in worker/train/run.h does everything else and knows
/// nothing about them.
///
/// Calls come in this order: open_data; parts; attach; first_values, or load after a checkpoint was loaded, or both
/// where checkpoints do not hold all parameters; then steps (before_step, loss for each micro-batch, after_step),
/// evaluations and saves; at the end exported.
class Recipe {
 public:
  virtual ~Recipe() = default;

  /// The data that the run file asks for. The source's content may change over time.
  virtual std::string data_source() const = 0;
  /// Opens the data. `began_with` is the fingerprint of the data that the run began with, if the run asked for the same
  /// source; otherwise it is empty. A cache may still hold that data. It is used even where the source has changed or
  /// is gone. The ranks of a node may share the work of checking the data. Throws base::UsageError when no retry can
  /// succeed. Not collective.
  virtual RunData open_data(const std::string& began_with, const agent::rank::RankEnvironment& place) = 0;
  /// The samples of a split; null: there are none.
  virtual std::shared_ptr<const BatchSource> data(Split split) const = 0;
  /// A batch of the largest usual sizes and of unknown content, with a weight above 0. Needs no data: for a plan, whose
  /// steps compute nothing.
  virtual Batch of_sizes(std::int64_t samples) const = 0;

  /// Builds the models. One of them is trained. Called once.
  virtual std::vector<Part> parts() = 0;
  /// The parts are sharded now. They outlive the recipe's other calls.
  virtual void attach(Parts& /*parts*/) {}
  /// Gives the parts the weights that training starts from, and says where they come from, for people. Throws
  /// base::UsageError when no retry can succeed. Not collective.
  virtual std::string first_values(Parts& parts) = 0;

  /// Sets what changes from step to step, such as the rate of a group. `step` is the number of finished ones, `epoch`
  /// how often the data were seen.
  virtual void before_step(std::int64_t /*step*/, double /*epoch*/) {}
  /// The losses of a batch, whose tensors are on the model's device. The host waits for nothing in it, so that a graph
  /// can hold it. Collective through the units.
  virtual Losses loss(const Batch& batch) = 0;
  /// Why batches have no fixed shapes, with what to change, for train.cuda_graph. Empty: they have, and loss() makes
  /// the same operations in each step.
  virtual std::string why_no_fixed_shapes() const = 0;
  /// The series of Losses::more. Equal on all ranks.
  virtual std::vector<std::string> step_series() const { return {}; }
  /// The optimizer has made its step, or has skipped it. `step` counts from 1.
  virtual void after_step(std::int64_t /*step*/) {}

  /// Measures the trained model on the validation data. Modules are in evaluation mode, and no gradients are recorded.
  /// Collective. By default: the mean loss, as validation/loss.
  virtual void evaluate(Evaluation& evaluation);

  /// Why evaluations of this run will not measure a series that the recipe may report, with what to change. Empty: they
  /// will. Called after open_data().
  virtual std::string why_not_measured(std::string_view /*series*/) const { return {}; }

  /// Writes into checkpoints what the parts do not hold.
  virtual void save(fsdp::Json& /*extra*/) const {}
  /// Takes it back. The parts have their values.
  virtual void load(const fsdp::Json& /*extra*/) {}

  /// Completes `options`, whose folder, sizes and dtype are set, with names and further files, and returns the model
  /// that is exported.
  virtual fsdp::ShardedModel& exported(Parts& parts, fsdp::ExportOptions& options) = 0;
};

using MakeRecipe = std::function<std::unique_ptr<Recipe>(const RunConfig&)>;

}  // namespace worker
