#include "worker/train/gpu.h"

#include <cstdlib>
#include <stdexcept>

#include "base/usage_error.h"
#include "spec/key_names.h"

#ifdef MUSTER_WITH_CUDA
#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#endif

namespace worker {
namespace {

constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";

/// True if the variable names a GPU. Slurm writes NoDevFiles where a job has none.
bool names_a_gpu(const char* visible) {
  const std::string text = visible == nullptr ? "" : visible;
  return !text.empty() && text.front() != '-' && text != "NoDevFiles";
}

}  // namespace

std::optional<GpuMemory> gpu_memory([[maybe_unused]] c10::Device device) {
#ifdef MUSTER_WITH_CUDA
  if (device.is_cuda()) {
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
    return GpuMemory{stats.allocated_bytes[0].peak, stats.reserved_bytes[0].current};
  }
#endif
  return std::nullopt;
}

std::optional<std::int64_t> gpu_size([[maybe_unused]] c10::Device device) {
#ifdef MUSTER_WITH_CUDA
  if (device.is_cuda())
    return static_cast<std::int64_t>(c10::cuda::CUDACachingAllocator::get()->getMemoryInfo(device.index()).second);
#endif
  return std::nullopt;
}

void set_up_gpus() {
#ifdef MUSTER_WITH_CUDA
  for (const char* variable : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"})
    if (std::getenv(variable) != nullptr) return;
  c10::CachingAllocator::setAllocatorSettings("expandable_segments:True");
#endif
}

void refuse_cpu_instead_of_gpus(c10::Device device) {
  const char* visible = std::getenv(kVisible);
  if (!device.is_cpu() || !names_a_gpu(visible)) return;
#ifdef MUSTER_WITH_CUDA
  std::string why = "it counts no devices";
  try {
    c10::cuda::device_count_ensure_non_zero();
  } catch (const c10::Error& error) {
    why = error.what_without_backtrace();
  }
  throw std::runtime_error(std::string(kVisible) + "=" + visible + " gives this rank a GPU, and CUDA finds none: " +
                           why + "; this build needs NVIDIA's driver 580 or newer; to train on the CPU, set " +
                           kVisible + "=\"\" or ask for no GPUs");
#else
  throw base::UsageError(
      std::string(kVisible) + "=" + visible +
      " gives this rank a GPU, and this muster-worker is built without CUDA; build it with ./dev build --preset cuda, "
      "install a torch for CUDA 13 beside the muster-worker of pip, or ask for no GPUs (" +
      spec::key::kGpusOfRank + " = 0, or " + kVisible + "=\"\")");
#endif
}

std::string why_no_cuda_graph(const RunConfig& config, c10::Device device, bool shares_gpus) {
  const auto& optimizer = config.optimizer;
  if (device.is_cpu())
    return "this rank computes on the CPU, which has no graphs; ask for GPUs (" + std::string(spec::key::kGpusOfRank) +
           ")";
  if (shares_gpus)
    return "ranks share a GPU, so they communicate through the host, which a graph cannot do; ask for a GPU a rank, or "
           "for fewer ranks";
  if (config.fsdp.offload != spec::Offloading::kNone)
    return "with fsdp.offload = \"cpu\" the optimizer runs on the host; set fsdp.offload = \"none\"";
  if (config.fsdp.activation_offload)
    return "with fsdp.activation_offload each step takes memory of the host, and a graph keeps the memory of a step; "
           "set "
           "fsdp.activation_offload = false";
  if (config.fsdp.tight)
    return "fsdp.tight gives back memory in each step, and a graph keeps the memory of a step; set fsdp.tight = false";
  if (optimizer.kind == spec::OptimizerKind::kLion)
    return "Lion looks on the host whether a step is skipped; set train.optimizer = \"adamw\"";
  if (optimizer.kind == spec::OptimizerKind::kSgd && optimizer.momentum != 0 && optimizer.dampening != 0)
    return "with dampening SGD reads its step counts on the host; set train.dampening = 0";
  if (optimizer.kind == spec::OptimizerKind::kMuon)
    return "Muon looks on the host whether a step is skipped; set train.optimizer = \"adamw\"";
  if (optimizer.kind == spec::OptimizerKind::kAdafactor)
    return "Adafactor looks on the host at the norms of the weights; set train.optimizer = \"adamw\"";
  if (optimizer.moments != spec::MomentsFormat::kFp32)
    return "with train.moments in fewer bits Adam reads its step counts on the host; set train.moments = \"fp32\"";
  if (optimizer.weight_decay_schedule != spec::WeightDecaySchedule::kConstant)
    return "LibTorch's fused optimizers take the weight decay from the host, and a graph keeps it; set "
           "train.weight_decay_schedule = \"constant\"";
  return "";
}

std::unique_ptr<fsdp::DeviceGraph> cuda_graph_of(const RunConfig& config, const fsdp::DeviceMesh& mesh,
                                                 const std::string& recipe) {
  if (!config.train.cuda_graph) return nullptr;
  std::string why = why_no_cuda_graph(config, mesh.device(), mesh.shares_gpus());
  if (why.empty()) why = recipe;
  if (!why.empty()) throw base::UsageError("train.cuda_graph = true: " + why + ", or leave train.cuda_graph out");
  return fsdp::make_device_graph(mesh.device());
}

}  // namespace worker
