// One rank of resident_memory_test.cpp: trains a model of some 200 MiB, and prints the most bytes that its tensors had
// and the most that were resident.
//   fsdp_resident_rank RANK RANKS fp32|bf16 FOLDER
#include <ATen/Parallel.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/FileStore.hpp>

#include "fsdp/engine/initialize.h"
#include "fsdp/memory/storage.h"
#include "fsdp/optim/optimizers.h"
#include "tests/fsdp/chain_model.h"

namespace {

/// The most bytes of this process that were in memory at one time.
std::int64_t most_resident() {
  std::ifstream in("/proc/self/status");
  for (std::string word; in >> word;) {
    std::int64_t kib = 0;
    if (word == "VmHWM:" && in >> kib) return kib << 10;
  }
  throw std::runtime_error("/proc/self/status has no VmHWM");
}

constexpr std::int64_t kWidth = 512;

void train(fsdp::DeviceMesh& mesh, at::ScalarType dtype) {
  const auto model = [] {
    const fsdp::MetaDeviceGuard guard;
    return std::make_shared<ChainModel>(kWidth, 24, 8, 8);
  }();
  fsdp::ShardOptions options;
  options.precision.param_dtype = dtype;
  fsdp::ShardedModel sharded(model, mesh);
  model->shard(sharded, options);
  fsdp::initialize(sharded, 1, [](const auto&, const at::Tensor& values, at::Generator& random) {
    values.normal_(0, 0.04, random);
  });
  fsdp::AdamW optimizer(sharded, {});
  for (int step = 0; step < 3; ++step) {
    model->forward(at::ones({4, kWidth})).backward();
    optimizer.step(1e-4);
    sharded.zero_grad();
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    TORCH_CHECK(argc == 5, "want four arguments");
    const int rank = std::stoi(argv[1]), ranks = std::stoi(argv[2]);
    at::set_num_threads(1);
    const auto bytes = std::make_shared<fsdp::TensorBytes>();
    const fsdp::CountTensorBytes counts(bytes);
    const auto store = c10::make_intrusive<c10d::FileStore>(std::string(argv[4]) + "/store", ranks);
    fsdp::MeshOptions options;
    options.shared_memory = false;  // pages of peers would count as resident here
    fsdp::DeviceMesh mesh(store, rank, ranks, options);
    train(mesh, std::string(argv[3]) == "bf16" ? at::kBFloat16 : at::kFloat);
    std::printf("%lld %lld\n", static_cast<long long>(bytes->peak()), static_cast<long long>(most_resident()));
    mesh.control().barrier();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
