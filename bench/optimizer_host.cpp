// What an optimizer's step costs the host: the processor time of the calling thread in Optimizer::step(), per unit.
// Units are as small as nine parameters of a Llama layer can be, so that arithmetic hardly counts. One process stands
// for one rank of a world: its transport moves nothing.
//
// Usage: optimizer_host WORLD_SIZE RANK. Prints one JSON line.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <time.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/adam.h"
#include "fsdp/fully_shard.h"
#include "fsdp/transport.h"

namespace {

constexpr std::int64_t kWidth = 16, kIntermediate = 44;
constexpr int kUnits = 32, kSteps = 100, kWarmUp = 20;

/// The parameters of a Llama layer.
struct Layer : torch::nn::Module {
  Layer() {
    const auto make = [this](const char* name, at::IntArrayRef shape) {
      weights.push_back(register_parameter(name, at::full(shape, 0.5)));
    };
    for (const char* name : {"q", "k", "v", "o"}) make(name, {kWidth, kWidth});
    for (const char* name : {"gate", "up", "down"}) make(name, {kIntermediate, kWidth});
    for (const char* name : {"input_norm", "post_norm"}) make(name, {kWidth});
  }
  std::vector<at::Tensor> weights;
};

struct Model : torch::nn::Module {
  Model() {
    for (int i = 0; i < kUnits; ++i)
      layers.push_back(register_module("layer" + std::to_string(i), std::make_shared<Layer>()));
  }
  std::vector<std::shared_ptr<Layer>> layers;
};

class Idle : public fsdp::Pending {
 public:
  void wait() override {}
};

/// Every collective ends at once. Received bytes stay as they were.
class SilentTransport : public fsdp::Transport {
 public:
  std::unique_ptr<fsdp::Pending> all_gather_into(const at::Tensor&, std::string_view) override {
    return std::make_unique<Idle>();
  }
  std::unique_ptr<fsdp::Pending> reduce_scatter(const at::Tensor& input, const at::Tensor& output,
                                                std::string_view) override {
    output.copy_(input.narrow(0, 0, output.numel()));
    return std::make_unique<Idle>();
  }
  std::unique_ptr<fsdp::Pending> start_all_reduce(const at::Tensor&, std::string_view) override {
    return std::make_unique<Idle>();
  }
  void all_reduce(at::Tensor&, fsdp::Reduction) override {}
  void broadcast(at::Tensor&, int) override {}
  void barrier() override {}
};

double thread_microseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) {
    std::fprintf(stderr, "usage: optimizer_host WORLD_SIZE RANK\n");
    return 2;
  }
  const int world_size = std::atoi(arguments[1]), rank = std::atoi(arguments[2]);
  at::set_num_threads(1);
  fsdp::DeviceMesh mesh(rank, world_size, [](const fsdp::MeshGroup&) { return std::make_unique<SilentTransport>(); });
  const auto model = std::make_shared<Model>();
  fsdp::ShardedModel sharded(model, mesh);
  for (const auto& layer : model->layers) sharded.fully_shard(layer);
  fsdp::AdamW optimizer(sharded);

  std::vector<double> took;
  for (int step = 0; step < kWarmUp + kSteps; ++step) {
    at::Tensor x = at::ones({1}).requires_grad_();
    for (int i = 0; i < kUnits; ++i)
      x = sharded.units()[i]->run(x, [&](at::Tensor in) {
        for (const at::Tensor& weight : model->layers[i]->weights) in = in + weight.mean();
        return in;
      });
    x.sum().backward();
    sharded.complete_gradients("optimizer_host");
    const double before = thread_microseconds();
    optimizer.step(1e-3);
    if (step >= kWarmUp) took.push_back((thread_microseconds() - before) / kUnits);
    sharded.zero_grad();
  }
  int slices = 0;
  for (const auto& segment : sharded.units().front()->segments())
    for (const auto& parameter : segment->layout().parameters()) slices += segment->layout().own(parameter).length > 0;
  std::sort(took.begin(), took.end());
  std::printf("{\"world_size\":%d,\"rank\":%d,\"slices\":%d,\"us_a_unit\":%.3f}\n", world_size, rank, slices,
              took[took.size() / 2]);
}
