#include "fsdp/comm/nccl/nccl_settings.h"

#include <stdlib.h>

#include <algorithm>
#include <cstdlib>

namespace fsdp::nccl {
namespace {

constexpr int kFirstWithLaunchOrder = 22600;
constexpr const char* kLaunchOrder = "NCCL_LAUNCH_ORDER_IMPLICIT";
/// Only for those who turn the monitor on again.
constexpr std::chrono::seconds kLeastHeartbeat{600};

}  // namespace

std::vector<Setting> settings(std::chrono::milliseconds timeout) {
  const auto heartbeat = std::max<std::chrono::seconds>(
      kLeastHeartbeat, std::chrono::ceil<std::chrono::seconds>(2 * timeout) + kAbortLimit);
  return {{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "2"},  // ErrorHandlingMode::CleanUpOnly
          {"TORCH_NCCL_ENABLE_MONITORING", "0"},
          {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", std::to_string(heartbeat.count())},
          {kLaunchOrder, "1"},
          // NCCL would register the buffers of collectives in a CUDA graph. With the allocator's expandable segments
          // that has ended in illegal memory accesses (Megatron-LM refuses the two together), so buffers are copied.
          {"NCCL_GRAPH_REGISTER", "0"}};
}

void set_where_unset(const std::vector<Setting>& settings) {
  for (const Setting& setting : settings) ::setenv(setting.name.c_str(), setting.value.c_str(), /*replace=*/0);
}

bool keeps_launch_order(int version) {
  const char* set = std::getenv(kLaunchOrder);
  return version >= kFirstWithLaunchOrder && set != nullptr && std::string(set) != "0";
}

}  // namespace fsdp::nccl
