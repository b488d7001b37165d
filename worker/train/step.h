#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/rank/environment.h"
#include "agent/rank/reporter.h"
#include "fsdp/engine/fully_shard.h"
#include "fsdp/optim/optimizers.h"
#include "fsdp/optim/step_graph.h"
#include "worker/batch/loader.h"
#include "worker/train/agreement.h"
#include "worker/train/optimizer_of_run.h"
#include "worker/train/recipe.h"
#include "worker/train/step_measures.h"
#include "worker/train/step_trace.h"
#include "worker/train/train_config.h"
#include "worker/train/train_parts.h"

namespace worker {

/// Numbers that a device computes for the host. On a GPU the copy is queued behind the work that computes them, so the
/// constructor waits for nothing.
class DeviceNumbers {
 public:
  DeviceNumbers() = default;
  /// `values` has any shape and any floating dtype.
  explicit DeviceNumbers(const at::Tensor& values);
  /// The first value. Waits until the device has computed it.
  double first() const;
  /// All values. Waits as first() does.
  std::vector<double> all() const;

 private:
  at::Tensor host_;
  std::optional<c10::Event> copied_;
};

/// Makes the optimizer steps of this rank, all ranks together.
///
/// [Note: graph of a step] With use_graph() the device replays a step as a whole (fsdp/optim/step_graph.h). Batches,
/// learning rate and the weight of the loss are copied to it first, and the loss, the norm and the scale are read from
/// it afterwards, late as ever. What the host does beside a step (the agreement, the random seed, the measures) stays.
///
/// [Note: late numbers] On a GPU the host queues a step's work and waits for none of it; else the GPU would be idle
/// while the host prepares what follows. So loss and gradient norm of a step are known while the next step computes.
/// late() says so. Whether a step is skipped is decided on the device, by the `found_inf` of the optimizer. On the CPU
/// every number is known when make() returns.
class Stepper {
 public:
  /// Only keeps the references, which must outlive the Stepper.
  Stepper(const RunConfig& config, const BatchSplit& split, const agent::rank::RankEnvironment& environment,
          agent::rank::Reporter& reporter, Recipe& recipe, Loader& loader, Parts& parts, LossScale& loss_scale);

  /// Lets the device replay steps from `graph`; see [Note: graph of a step]. Before the first step.
  void use_graph(std::unique_ptr<fsdp::DeviceGraph> graph);
  /// Memory that the graph of the step keeps for itself; nothing before it is recorded, and without one.
  std::optional<std::int64_t> graph_bytes() const;

  /// Takes the batches of the first step. Collective.
  void prepare();

  /// Makes step `step`, counted from 0. Returns what the ranks were asked to do meanwhile. Collective.
  agent::rank::StopKind make(std::int64_t step);

  /// A step whose numbers are known.
  struct Made {
    agent::rank::StepReport report;  ///< step and step_ms, bytes_communicated
    StepMeasures measures;
  };
  /// True if numbers come a step late.
  bool late() const { return late_; }
  /// The oldest made step that was not taken yet, or nothing when at most `keep` are left. Waits for its numbers.
  /// Collective.
  std::optional<Made> take(std::size_t keep = 0);

  /// How many samples were dealt before those of the step that comes.
  std::int64_t samples() const { return samples_; }
  /// How many epochs these samples are.
  double epoch() const { return epoch_; }

 private:
  using Clock = std::chrono::steady_clock;

  /// Size of batches: their weight, and their tokens without padding.
  struct Size {
    double weight = 0, tokens = 0;
  };
  struct InFlight {
    Made made;
    Clock::time_point start;
    std::optional<c10::Event> begun, ended;            // on the device, where numbers come late
    Size size;                                         // of the step's batches, over all ranks
    DeviceNumbers losses, norm;                        // this rank's sums of losses; the norm of the gradient
    std::optional<DeviceNumbers> scale;                // of the loss
    std::optional<std::vector<double>> agreed_losses;  // the sums over all ranks
  };

  Size draw();
  agent::rank::StopKind call_step(InFlight& step);
  agent::rank::StopKind forward_backward(InFlight& step);
  agent::rank::StopKind replay_step(InFlight& step);
  double loss_factor() const;
  void add_losses(at::Tensor& sums, const Losses& losses) const;
  std::vector<at::Tensor> graphed(const std::vector<at::Tensor>& inputs);
  InFlight* untold();
  AgreementUnderWay start_agreement(const InFlight* told);
  agent::rank::StopKind finish_agreement(AgreementUnderWay& agreement, InFlight* told, const InFlight& step);
  void mark(std::optional<c10::Event>& event) const;

  const RunConfig& config_;
  const BatchSplit& split_;
  const agent::rank::RankEnvironment& environment_;
  agent::rank::Reporter& reporter_;
  Recipe& recipe_;
  Loader& loader_;
  Parts& parts_;
  fsdp::DeviceMesh& mesh_;
  fsdp::ShardedModel& sharded_;
  fsdp::Optimizer& optimizer_;
  LossScale& loss_scale_;
  const std::vector<std::string> series_;  // of the recipe
  const bool late_;
  TraceRequests traces_;
  // State of the step that comes: this rank's batches, their size over all ranks, how many samples and epochs were
  // dealt before, and how long this rank waited for the batches.
  std::vector<Batch> micro_batches_;
  Size size_;
  std::int64_t samples_ = 0;
  double epoch_ = 0, data_wait_ms_ = 0;
  std::deque<InFlight> in_flight_;
  // With a graph: what it reads, fp32 without dims on the device.
  at::Tensor learning_rate_, loss_weight_;
  std::unique_ptr<fsdp::StepGraph> graph_;
};

}  // namespace worker
