#include "fsdp/engine/deterministic.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <mutex>
#include <string>

namespace fsdp {
namespace {

constexpr const char* kWorkspace = "CUBLAS_WORKSPACE_CONFIG";

}  // namespace

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
