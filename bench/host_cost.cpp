// Measures the cost of the engine for the host: the processor time of the calling thread per unit, in
// Optimizer::step(), and in forward and backward beyond that of the same model without the engine. Units are as small
// as nine parameters of a Llama layer can be, so that arithmetic hardly counts. One process stands for one rank of a
// world: its transport moves nothing.
//
// Usage: host_cost WORLD_SIZE RANK. Prints one JSON line.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <time.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/comm/transport.h"
#include "fsdp/engine/fully_shard.h"
#include "fsdp/optim/optimizers.h"

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

double thread_microseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

/// Microseconds of this thread a unit.
double took(const std::function<void()>& work) {
  const double before = thread_microseconds();
  work();
  return (thread_microseconds() - before) / kUnits;
}

double median(std::vector<double>& numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

at::Tensor call(const Layer& layer, at::Tensor x) {
  for (const at::Tensor& weight : layer.weights) x = x + weight.mean();
  return x;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) {
    std::fprintf(stderr, "usage: host_cost WORLD_SIZE RANK\n");
    return 2;
  }
  const int world_size = std::atoi(arguments[1]), rank = std::atoi(arguments[2]);
  at::set_num_threads(1);
  fsdp::DeviceMesh mesh(rank, world_size, [](const fsdp::MeshGroup& group) {
    return fsdp::make_still_transport(group.rank, group.size);
  });
  const auto model = std::make_shared<Model>(), plain = std::make_shared<Model>();
  fsdp::ShardedModel sharded(model, mesh);
  for (const auto& layer : model->layers) sharded.fully_shard(layer);
  fsdp::AdamW optimizer(sharded);

  std::vector<double> added, without, update;
  for (int step = 0; step < kWarmUp + kSteps; ++step) {
    const double with_engine = took([&] {
      at::Tensor x = at::ones({1}).requires_grad_();
      for (int i = 0; i < kUnits; ++i)
        x = sharded.units()[i]->run(x, [&](at::Tensor in) { return call(*model->layers[i], std::move(in)); });
      x.sum().backward();
      sharded.complete_gradients("host_cost");
    });
    const double alone = took([&] {
      at::Tensor x = at::ones({1}).requires_grad_();
      for (const auto& layer : plain->layers) x = call(*layer, std::move(x));
      x.sum().backward();
    });
    const double optimizer_step = took([&] { optimizer.step(1e-3); });
    sharded.zero_grad();
    plain->zero_grad(/*set_to_none=*/false);
    if (step < kWarmUp) continue;
    added.push_back(with_engine - alone);
    without.push_back(alone);
    update.push_back(optimizer_step);
  }
  int slices = 0;
  for (const auto& segment : sharded.units().front()->segments())
    for (const auto& parameter : segment->layout().parameters()) slices += segment->layout().own(parameter).length > 0;
  std::printf(
      "{\"world_size\":%d,\"rank\":%d,\"slices\":%d,\"added_us\":%.3f,\"plain_us\":%.3f,\"optimizer_us\":%.3f}\n",
      world_size, rank, slices, median(added), median(without), median(update));
}
