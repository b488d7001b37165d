#include "fsdp/optim/step_graph.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <exception>

#include "fsdp/engine/random_state.h"
#include "fsdp/tracing/error_text.h"

namespace fsdp {
namespace {

c10::impl::VirtualGuardImpl streams(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type());
}

c10::Stream own_stream(const ShardedModel& model, c10::Device device) {
  TORCH_CHECK(!device.is_cpu(), "step graph: the model is on the CPU, which has no graphs; call the step itself");
  for (const auto& unit : model.units()) {
    TORCH_CHECK(!unit->options().offload.to_cpu, "step graph: unit ", unit->name(),
                " is offloaded, and its optimizer runs on the host; use no offload, or call the step itself");
    TORCH_CHECK(
        !unit->options().tight, "step graph: unit ", unit->name(),
        " is tight, and gives back memory that a graph uses by its address; use tight = false, or call the step "
        "itself");
  }
  return streams(device).getStreamFromGlobalPool(device, /*isHighPriority=*/false);
}

/// Makes `stream` the current one, after all that the current one has been given. At the end the former current stream
/// waits for it.
class OnStream {
 public:
  explicit OnStream(c10::Stream stream) : before_(streams(stream.device()).getStream(stream.device())), guard_(stream) {
    follow(stream, before_);
  }
  ~OnStream() {
    try {
      follow(before_, guard_.current_stream());
    } catch (const std::exception&) {
      // The failure that is under way tells more.
    }
  }
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  static void follow(c10::Stream later, c10::Stream earlier) {
    c10::Event reached(later.device_type());
    reached.record(earlier);
    reached.block(later);
  }
  c10::Stream before_;
  c10::StreamGuard guard_;
};

std::vector<at::Tensor> detached(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> out;
  for (const at::Tensor& tensor : tensors) out.push_back(tensor.detach());
  return out;
}

}  // namespace

StepGraph::StepGraph(ShardedModel& model, Optimizer& optimizer, std::unique_ptr<DeviceGraph> graph, int warm_up)
    : model_(model),
      optimizer_(optimizer),
      graph_(std::move(graph)),
      device_(model.mesh().device()),
      stream_(own_stream(model, device_)),
      warm_up_(warm_up) {
  TORCH_CHECK(graph_, "step graph: no graph of the device");
  TORCH_CHECK(warm_up >= 2, "step graph: ", warm_up,
              " steps before the recording: want 2 or more, because pools reach their size in the second step");
  TORCH_CHECK(optimizer.host_reads().empty(), "step graph: optimizer ", optimizer.name(), " reads ",
              optimizer.host_reads(), " on the host; use another optimizer, or call the step itself");
}

StepGraph::~StepGraph() {
  try {
    streams(device_).synchronizeDevice(device_.index());
    outputs_.clear();
    graph_.reset();
    model_.keep_pool_memory(false);
  } catch (const std::exception&) {
    // The device has failed, and whoever uses it next is told.
  }
}

const std::vector<at::Tensor>& StepGraph::inputs(const std::vector<at::Tensor>& values) {
  const at::NoGradGuard no_grad;
  if (inputs_.empty())
    for (const at::Tensor& value : values)
      inputs_.push_back(at::empty_like(value, value.options().device(device_).pinned_memory(false)));
  TORCH_CHECK(values.size() == inputs_.size(), "step graph: ", values.size(), " inputs, and the first step had ",
              inputs_.size(), "; give every step the same, or call the step itself");
  for (std::size_t i = 0; i < values.size(); ++i) {
    const at::Tensor &value = values[i], &place = inputs_[i];
    TORCH_CHECK(value.sizes() == place.sizes() && value.scalar_type() == place.scalar_type(), "step graph: input ", i,
                " is ", value.sizes(), " of ", value.scalar_type(), ", and was ", place.sizes(), " of ",
                place.scalar_type(), " in the first step; give every step the same shapes, or call the step itself");
    place.copy_(value, /*non_blocking=*/true);
  }
  return inputs_;
}

const std::vector<at::Tensor>& StepGraph::run(const Step& step) {
  for (const auto& unit : model_.units()) unit->reshard();  // as it will be at the start of every replay
  if (made_ < warm_up_) {
    warm_up(step);
    ++made_;
    return outputs_;
  }
  if (recorded_) {
    check_unchanged();
    model_.mesh().repeat_calls();
    optimizer_.set_steps(optimizer_.steps() + 1);
  } else {
    record(step);
  }
  const Tracer::Scope span(model_.mesh().tracer().get(), "replay", "step graph");
  graph_->replay();
  model_.changed_by_current_stream();
  return outputs_;
}

void StepGraph::warm_up(const Step& step) {
  const at::Tensor before = random_state(device_);
  {
    const OnStream own(stream_);
    outputs_ = detached(step());
  }
  draws_ = draws_ || !at::equal(before, random_state(device_));
}

void StepGraph::record(const Step& step) {
  TORCH_CHECK(graph_, "step graph: the recording has failed; call the step itself");
  model_.keep_pool_memory(true);
  // Work of the warm-up is done, so the graph depends on nothing outside of it.
  streams(device_).synchronizeDevice(device_.index());
  outputs_.clear();  // not before, because their memory goes back to another stream than the caller's
  DeviceMesh& mesh = model_.mesh();
  const Tracer::Pause pause(*mesh.tracer());
  const RandomInGraph random(device_, draws_);
  mesh.note_calls(true);
  try {
    const c10::StreamGuard own(stream_);
    graph_->begin();
    model_.changed_by_current_stream();  // forks the engine's streams
    outputs_ = detached(step());
    graph_->end();
  } catch (const std::exception& error) {
    mesh.note_calls(false);
    graph_.reset();  // ends the recording
    TORCH_CHECK(false, "step graph: the step cannot be recorded: ", text_of(error),
                "; the host may wait for nothing in it, and its work must depend on nothing outside of it; call the "
                "step itself");
  }
  mesh.note_calls(false);
  recorded_ = true;
  recorded_of_ = fingerprint();
  weight_decay_ = optimizer_.weight_decay();
  rates_ = optimizer_.rates();
}

/// The addresses of all shards, each followed by something else where its parameters train.
std::vector<const void*> StepGraph::fingerprint() const {
  std::vector<const void*> all;
  for (const auto& unit : model_.units()) {
    for (const auto& segment : unit->segments()) {
      all.push_back(segment->shard().const_data_ptr());
      all.push_back(segment->key().trainable ? segment.get() : nullptr);
    }
  }
  return all;
}

void StepGraph::check_unchanged() const {
  const auto& units = model_.units();
  const bool same =
      std::all_of(units.begin(), units.end(), [](const auto& unit) { return unit->follows_requires_grad(); });
  TORCH_CHECK(same && recorded_of_ == fingerprint(),
              "step graph: a parameter was frozen or unfrozen, or moved, after the step was recorded; make a new "
              "StepGraph, or call the step itself");
  TORCH_CHECK(optimizer_.weight_decay() == weight_decay_, "step graph: the weight decay is ", optimizer_.weight_decay(),
              ", and was ", weight_decay_, " when the step was recorded; keep it, or call the step itself");
  for (const auto& [rate, scale] : optimizer_.rates())
    TORCH_CHECK(scale == rates_.at(rate), "step graph: the scale of rate ", rate, " is ", scale, ", and was ",
                rates_.at(rate), " when the step was recorded; keep it, or call the step itself");
}

#ifndef MUSTER_WITH_CUDA
std::unique_ptr<DeviceGraph> make_device_graph(c10::Device device) {
  TORCH_CHECK(false, "step graph: no graphs for device ", device,
              device.is_cuda() ? " in this build; build with MUSTER_WITH_CUDA" : "; call the step itself");
}
#endif

}  // namespace fsdp
