#include "fsdp/engine/random_state.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>

namespace fsdp {
namespace {

enum class InGraph { kNothing, kDrawsNothing, kDraws };

// Backward runs on a thread of autograd's. A process has one device beside the CPU.
std::atomic<InGraph> in_graph{InGraph::kNothing};

constexpr const char* kWorkspace = "CUBLAS_WORKSPACE_CONFIG";

}  // namespace

at::Tensor random_state(at::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_random_state(const at::Tensor& state, at::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

RandomInGraph::RandomInGraph(at::Device device, bool draws) {
  if (!device.is_cpu()) in_graph = draws ? InGraph::kDraws : InGraph::kDrawsNothing;
}

RandomInGraph::~RandomInGraph() {
  in_graph = InGraph::kNothing;
}

bool must_restore_random(at::Device device) {
  const InGraph now = in_graph;
  if (device.is_cpu() || now == InGraph::kNothing) return true;
  TORCH_CHECK(
      now == InGraph::kDrawsNothing, "recompute: the step goes into a graph and draws random numbers on ", device,
      ", such as dropout's; a graph cannot draw the same ones a second time; recompute nothing, draw nothing, or "
      "use no graph");
  return false;
}

void compute_deterministically() {
  static std::mutex environment;
  const std::lock_guard<std::mutex> lock(environment);
  if (const char* given = std::getenv(kWorkspace)) {
    const std::string value = given;
    TORCH_CHECK(value == ":4096:8" || value == ":16:8", kWorkspace, "=", value,
                ": sums of cuBLAS are repeatable with \":4096:8\" and \":16:8\" only; unset the variable, or compute "
                "without deterministic algorithms");
  } else {
    ::setenv(kWorkspace, ":4096:8", /*overwrite=*/0);
  }
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
  // Nothing reads memory before it is written, so filling each new tensor would only cost time.
  context.setDeterministicFillUninitializedMemory(false);
}

}  // namespace fsdp
