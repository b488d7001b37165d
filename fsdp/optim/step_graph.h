#pragma once
#include <c10/core/Stream.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "fsdp/engine/fully_shard.h"
#include "fsdp/optim/optimizers.h"

namespace fsdp {

/// A recording of what a device is told, which the device can do again by one call.
///
/// Between begin() and end() nothing runs. What is put into the current stream, and into streams that wait for an event
/// of it, goes into the graph. Each such stream must be waited for before end(). Memory that is allocated meanwhile is
/// the graph's own, also after it is freed.
class DeviceGraph {
 public:
  /// Gives up a recording that has not ended. No replay may be under way.
  virtual ~DeviceGraph() = default;
  /// On a stream that is not the device's default one. The host may wait for nothing until end().
  virtual void begin() = 0;
  /// Throws c10::Error when the recording is not whole, such as with a stream that was not waited for.
  virtual void end() = 0;
  /// Puts the recorded work into the current stream. May be called any number of times.
  virtual void replay() = 0;
  /// Memory that the graph keeps for itself.
  virtual std::int64_t bytes() const = 0;
};

/// CUDA's graphs. Throws c10::Error for another device than a GPU, and in builds without MUSTER_WITH_CUDA.
std::unique_ptr<DeviceGraph> make_device_graph(c10::Device device);

/// A whole training step of a sharded model as one graph: forward, backward, gathers and reductions, clipping and the
/// optimizer's update. A replay costs the host one call, whatever the number of layers.
///
///   fsdp::StepGraph graph(sharded, optimizer, fsdp::make_device_graph(mesh.device()));
///   for (...) {
///     const auto in = graph.inputs({tokens});         // copied to where the graph reads
///     lr.fill_(rate);                                 // fp32 without dims, on the device
///     const auto out = graph.run([&] {
///       const at::Tensor loss = model->forward(in[0]);
///       loss.backward();
///       const auto norm = fsdp::gradient_norm(sharded, 1.0);
///       optimizer.step(lr, norm.grad_scale, norm.found_inf);
///       sharded.zero_grad();
///       return std::vector<at::Tensor>{loss, norm.norm};
///     });
///   }
///
/// [Note: step graph] The first steps run as they are called ("warm-up"): pools grow to their size, communicators
/// connect, states and lists are made. The next run() calls `step` once more, and records it instead of running it.
/// That and each later step is a replay. So `step` must be the same work each time: what it reads from the host is read
/// once.
///
/// - Inputs and rates are tensors that keep their places. The host writes them before run().
/// - Warm-up and recording use one stream of the graph's own. So autograd's nodes never belong to another stream.
/// - The engine's streams are forked from that stream: shards and slots count as changed at its start. Every gather and
///   reduction is waited for within the step, which joins them.
/// - Slots of pools, shards, gradients and states are used by their addresses. So pools give no memory back while the
///   graph lives, and the graph refuses to go on when a parameter was frozen or unfrozen.
/// - Which parameters took part in a step is told while it is recorded, over control(), and holds for all replays.
///   Replays make no collective of control().
/// - Collectives of replays count in traffic(), and the watcher numbers them like called ones.
/// - A trace shows one span for a replay, as the host makes none of the calls.
/// - Random numbers are those of the device's generator at each replay. recompute() within the step is allowed where
///   the step draws none.
///
/// Between replays anything may be called that changes no shape: evaluation, saves, a change of the rate. All ranks
/// make the same number of steps with a StepGraph. Not thread-safe. Destroy it before model, optimizer and mesh.
class StepGraph {
 public:
  /// Returns what the caller reads of the step, such as loss and norm.
  using Step = std::function<std::vector<at::Tensor>()>;
  static constexpr int kWarmUp = 3;

  /// `warm_up`: steps before the recording, 2 or more. Throws c10::Error for a model on the CPU, with Offload::to_cpu
  /// or tight units, and for an optimizer that reads on the host.
  StepGraph(ShardedModel& model, Optimizer& optimizer, std::unique_ptr<DeviceGraph> graph, int warm_up = kWarmUp);
  /// Waits for the device.
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  /// Copies `values`, which may be pinned tensors of the host, into tensors on the device, and returns those. They are
  /// the same each time. Throws c10::Error when number, shape or dtype differ from those of the first call.
  const std::vector<at::Tensor>& inputs(const std::vector<at::Tensor>& values);

  /// Makes a step: calls `step`, or replays it. Returns what `step` has returned, detached. After a replay these are
  /// the same tensors each time: queue copies of them before the next step. Collective as `step` is. Throws c10::Error
  /// when the step cannot be recorded, and when something has changed that the graph holds as it was.
  const std::vector<at::Tensor>& run(const Step& step);

  /// True if the next run() is a replay.
  bool is_recorded() const { return recorded_; }
  /// Memory that the graph keeps for itself; 0 before the recording.
  std::int64_t bytes() const { return recorded_ ? graph_->bytes() : 0; }

 private:
  void warm_up(const Step& step);
  void record(const Step& step);
  void check_unchanged() const;
  std::vector<const void*> fingerprint() const;

  ShardedModel& model_;
  Optimizer& optimizer_;
  std::unique_ptr<DeviceGraph> graph_;
  const c10::Device device_;
  const c10::Stream stream_;
  const int warm_up_;
  int made_ = 0;
  bool draws_ = false;  // the step draws random numbers on the device
  bool recorded_ = false;
  double weight_decay_ = 0;
  std::map<int, double> rates_;
  std::vector<const void*> recorded_of_;
  std::vector<at::Tensor> inputs_, outputs_;
};

}  // namespace fsdp
