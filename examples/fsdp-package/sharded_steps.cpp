// Shards a module over the processes of this machine that RANK and WORLD_SIZE count, makes three steps, and prints the
// loss of each. Without these variables one process trains alone.
#include <torch/nn/modules/linear.h>
#include <torch/csrc/distributed/c10d/Store.hpp>  // fsdp's headers only declare what a store is

#include <cstdlib>
#include <iostream>

#include "fsdp/engine/fully_shard.h"
#include "fsdp/optim/optimizers.h"

int number_of(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : otherwise;
}

int main() {
  const int rank = number_of("RANK", 0), ranks = number_of("WORLD_SIZE", 1), port = number_of("MASTER_PORT", 29500);
  const auto store = rank == 0 ? fsdp::listen_store("127.0.0.1", port).store : fsdp::connect_store("127.0.0.1", port);
  fsdp::DeviceMesh mesh(store, rank, ranks);
  at::manual_seed(7);  // the same first weights and rows on each rank
  torch::nn::Linear layer(8, 8);
  fsdp::ShardedModel model(layer.ptr(), mesh);
  const auto unit = model.fully_shard(layer.ptr());
  fsdp::AdamW optimizer(model);
  const at::Tensor rows = at::randn({12, 8}).chunk(ranks)[rank];
  for (int step = 1; step <= 3; ++step) {
    const at::Tensor out = unit->run(rows, [&](const at::Tensor& x) { return layer->forward(x); });
    const at::Tensor loss = out.pow(2).mean();
    loss.backward();
    optimizer.step(1e-2);
    model.zero_grad();
    const double mean = mesh.control().all_reduce(loss.item<double>()) / ranks;
    if (rank == 0) std::cout << "step " << step << ": loss " << mean << "\n";
  }
}
