#include "worker/train/cuda_graph.h"

#include "base/usage_error.h"

namespace worker {

std::string why_no_cuda_graph(const RunConfig& config, c10::Device device, bool shares_gpus) {
  const auto& optimizer = config.optimizer;
  if (device.is_cpu())
    return "this rank computes on the CPU, which has no graphs; ask for GPUs (resources.gpus_per_rank)";
  if (shares_gpus)
    return "ranks share a GPU, so they communicate through the host, which a graph cannot do; ask for a GPU a rank, or "
           "for fewer ranks";
  if (config.fsdp.offload != spec::Offloading::kNone)
    return "with fsdp.offload = \"cpu\" the optimizer runs on the host; set fsdp.offload = \"none\"";
  if (config.fsdp.tight)
    return "fsdp.tight gives back memory in each step, and a graph keeps the memory of a step; set fsdp.tight = false";
  if (optimizer.kind == spec::OptimizerKind::kLion)
    return "Lion looks on the host whether a step is skipped; set train.optimizer = \"adamw\"";
  if (optimizer.kind == spec::OptimizerKind::kSgd && optimizer.momentum != 0 && optimizer.dampening != 0)
    return "with dampening SGD reads its step counts on the host; set train.dampening = 0";
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
