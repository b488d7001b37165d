// One rank of gpu_ranks_test.cpp. Several ranks may share a GPU.
//   fsdp_gpu_rank RANK RANKS STORE WORDS
// STORE: the file of the rendezvous. WORDS, joined by commas: "late" (results of collectives come late on a stream of
// their own), "nccl" (also where ranks share a GPU), "one_communicator", "bf16", "zero1", "no_prefetch",
// "deep_prefetch", "hybrid", "recompute", "unclipped"; "called" or "graph" (steps that the host calls, or that the GPU
// replays); "dies" or "differs" (rank 1 ends, or makes another call, in the middle).
// Prints the loss of each step and a hash of each parameter. An error goes to standard output, too.
#include <ATen/cuda/Sleep.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/cuda/CUDAFunctions.h>
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "fsdp/comm/transport.h"
#include "fsdp/engine/random_state.h"
#include "fsdp/engine/recompute.h"
#include "fsdp/optim/grad_scaler.h"
#include "fsdp/optim/step_graph.h"
#include "tests/fsdp/small_model.h"

namespace {

constexpr int kSteps = 8, kFault = 4;
constexpr float kRate = 0.0078125F;              // exact in fp32, which a graph takes it in
constexpr std::int64_t kMostCycles = 4'000'000;  // a few milliseconds, many times what a unit computes

/// Brings each result on a stream of its own, after a random time. As with NCCL, only who waits sees it.
class LateTransport : public fsdp::Transport {
 public:
  LateTransport(std::unique_ptr<fsdp::Transport> inner, c10::Device device, int seed)
      : inner_(std::move(inner)),
        streams_(device.type()),
        device_(device),
        side_(streams_.getStreamFromGlobalPool(device, /*isHighPriority=*/true)),
        random_(seed) {}

  std::unique_ptr<fsdp::Pending> all_gather_into(const at::Tensor& buffer, std::string_view whose) override {
    return late([&] { return inner_->all_gather_into(buffer, whose); });
  }
  std::unique_ptr<fsdp::Pending> reduce_scatter(const at::Tensor& input, const at::Tensor& output,
                                                std::string_view whose) override {
    return late([&] { return inner_->reduce_scatter(input, output, whose); });
  }
  std::unique_ptr<fsdp::Pending> start_all_reduce(const at::Tensor& tensor, std::string_view whose) override {
    return late([&] { return inner_->start_all_reduce(tensor, whose); });
  }
  void all_reduce(at::Tensor& tensor, fsdp::Reduction reduction) override { inner_->all_reduce(tensor, reduction); }
  void broadcast(at::Tensor& tensor, int root) override { inner_->broadcast(tensor, root); }
  void barrier() override { inner_->barrier(); }

 private:
  struct Late : fsdp::Pending {
    Late(c10::Event event, c10::impl::VirtualGuardImpl all_streams, c10::Device d)
        : arrived(std::move(event)), streams(all_streams), device(d) {}
    void wait() override { arrived.block(streams.getStream(device)); }
    c10::Event arrived;
    c10::impl::VirtualGuardImpl streams;
    c10::Device device;
  };

  template <typename Start>
  std::unique_ptr<fsdp::Pending> late(const Start& start) {
    c10::Event begun(device_.type()), arrived(device_.type());
    begun.record(streams_.getStream(device_));
    const auto pending = start();
    const c10::StreamGuard on_side(side_);
    begun.block(side_);
    at::cuda::sleep(std::uniform_int_distribution<std::int64_t>(0, kMostCycles)(random_));
    pending->wait();
    arrived.record(side_);
    return std::make_unique<Late>(std::move(arrived), streams_, device_);
  }

  std::unique_ptr<fsdp::Transport> inner_;
  c10::impl::VirtualGuardImpl streams_;
  c10::Device device_;
  c10::Stream side_;
  std::mt19937 random_;
};

using Words = std::function<bool(const std::string&)>;

/// NCCL refuses two ranks on one GPU of one host, so each rank says that it is a host of its own. NCCL communicates
/// over its sockets then.
void pretend_to_be_a_host(int rank) {
  ::setenv("NCCL_HOSTID", ("rank-" + std::to_string(rank)).c_str(), /*replace=*/1);
  ::setenv("NCCL_SOCKET_IFNAME", "lo", /*replace=*/0);
}

std::unique_ptr<fsdp::DeviceMesh> make_mesh(int rank, int ranks, const std::string& file, const Words& has) {
  const auto store = c10::make_intrusive<c10d::FileStore>(file, ranks);
  fsdp::MeshOptions options;
  options.device = fsdp::device_of_rank(rank);
  TORCH_CHECK(options.device.is_cuda(), "no GPU");
  options.timeout = std::chrono::seconds(60);
  if (has("hybrid")) options.axes = {{"replicate", 2}, {"shard", ranks / 2}};
  if (!has("late") && !has("nccl")) return std::make_unique<fsdp::DeviceMesh>(store, rank, ranks, options);
  c10::cuda::set_device(options.device.index());
  if (has("nccl")) {
    pretend_to_be_a_host(rank);
    options.separate_reductions = !has("one_communicator");
  }
  const auto make = [&](const fsdp::MeshGroup& group) -> std::unique_ptr<fsdp::Transport> {
    const auto keys = c10::make_intrusive<c10d::PrefixStore>(group.axis + std::to_string(group.number), store);
    const fsdp::TransportOptions wanted{group.rank, group.size, options.timeout, "", {}, options.device};
    if (has("nccl") && group.axis != "control") return fsdp::make_nccl_transport(keys, wanted);
    auto sockets = fsdp::make_socket_transport(keys, wanted);
    if (group.axis == "control") return sockets;
    return std::make_unique<LateTransport>(fsdp::make_staged_transport(std::move(sockets), group.rank, group.size),
                                           options.device, rank);
  };
  auto mesh = std::make_unique<fsdp::DeviceMesh>(rank, ranks, make, options);
  if (has("nccl")) mesh->watch(c10::make_intrusive<c10d::PrefixStore>("watcher", store));
  return mesh;
}

/// FNV-1a of the bytes.
std::uint64_t hash_of(const at::Tensor& tensor) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto* bytes = static_cast<const std::uint8_t*>(tensor.const_data_ptr());
  for (std::size_t i = 0; i < tensor.nbytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3;
  return hash;
}

void recompute_blocks(Trainer& trainer) {
  for (std::size_t i = 0; i < trainer.model->blocks.size(); ++i) {
    const auto unit = trainer.sharded.units()[i];
    const Block& block = *trainer.model->blocks[i];
    trainer.model->blocks[i]->wrap = [unit, &block](at::Tensor input, const auto& forward) {
      return unit->run(std::move(input), [&](at::Tensor in) {
        const auto part = [forward](std::vector<at::Tensor> list) { return std::vector<at::Tensor>{forward(list[0])}; };
        return fsdp::recompute({std::move(in)}, part, block)[0];
      });
    };
  }
}

void print_loss(double loss, const at::Tensor& norm) {
  std::printf("loss %.17g norm %.5g\n", loss, norm.item<double>());
}

void make_fault(fsdp::DeviceMesh& mesh, const Words& has) {
  if (mesh.rank() != 1) return;
  if (has("dies")) ::raise(SIGKILL);
  if (has("differs")) mesh.shard().all_gather_into(at::ones({10}, at::TensorOptions(mesh.device())), "stray")->wait();
}

/// Steps that wait for nothing on the host.
void train_without_waits(fsdp::DeviceMesh& mesh, Trainer& trainer, const Words& has) {
  const at::Tensor lr = at::full({}, kRate, at::TensorOptions(at::kFloat).device(mesh.device()));
  const auto make = [&](const at::Tensor& tokens) {
    const at::Tensor loss = trainer.model->forward(tokens);
    loss.backward();
    const auto norm = fsdp::gradient_norm(trainer.sharded, 0.5);
    trainer.optimizer->step(lr, norm.grad_scale, norm.found_inf);
    trainer.sharded.zero_grad();
    return std::vector<at::Tensor>{loss.detach(), norm.norm};
  };
  std::optional<fsdp::StepGraph> graph;
  if (has("graph")) graph.emplace(trainer.sharded, *trainer.optimizer, fsdp::make_device_graph(mesh.device()));
  for (int step = 0; step < kSteps; ++step) {
    const at::Tensor tokens = part_of(tokens_of(step), mesh.rank(), mesh.world_size()).contiguous().pin_memory();
    std::vector<at::Tensor> told;
    if (graph) {
      const auto& in = graph->inputs({tokens});
      told = graph->run([&] { return make(in[0]); });
    } else {
      told = make(tokens.to(mesh.device()));
    }
    print_loss(mesh.control().all_reduce(told[0].item<double>()) / mesh.world_size(), told[1]);
  }
  TORCH_CHECK(!graph || graph->is_recorded(), "no step was recorded");
}

void train_with_fault_and_accumulation(fsdp::DeviceMesh& mesh, Trainer& trainer, const Words& has) {
  for (int step = 0; step < kSteps; ++step) {
    if (step == kFault) make_fault(mesh, has);
    if (step == 2) {
      trainer.sharded.set_requires_gradient_sync(false);
      trainer.accumulate(tokens_of(100));
      trainer.sharded.set_requires_gradient_sync(true);
    }
    const double loss = trainer.accumulate(tokens_of(step));
    // The norm's last bits depend on how a strategy cuts the shards, and so do the bits of clipped gradients.
    const auto norm = fsdp::gradient_norm(trainer.sharded, has("unclipped") ? 0 : 0.5);
    trainer.optimizer->step(1e-2, norm.grad_scale, norm.found_inf);
    trainer.sharded.zero_grad();
    print_loss(loss, norm.norm);
  }
}

void train(fsdp::DeviceMesh& mesh, const Words& has) {
  fsdp::ShardOptions options;
  if (has("bf16")) options.precision.param_dtype = at::kBFloat16;
  if (has("zero1")) options.reshard_after_forward = options.reshard_after_backward = false;
  if (has("no_prefetch")) options.prefetch_depth = 0;
  if (has("deep_prefetch")) options.prefetch_depth = 3;
  Trainer trainer(mesh, options);
  if (has("recompute")) recompute_blocks(trainer);
  if (has("called") || has("graph")) {
    train_without_waits(mesh, trainer, has);
  } else {
    train_with_fault_and_accumulation(mesh, trainer, has);
  }
  for (const auto& [name, value] : trainer.sharded.gather_full_state())
    std::printf("%s %016llx\n", name.c_str(), static_cast<unsigned long long>(hash_of(value)));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    TORCH_CHECK(argc == 5, "want four arguments");
    const Words has = [words = "," + std::string(argv[4]) + ","](const std::string& word) {
      return words.find("," + word + ",") != std::string::npos;
    };
    fsdp::compute_deterministically();
    const auto mesh = make_mesh(std::stoi(argv[1]), std::stoi(argv[2]), argv[3], has);
    std::fprintf(stderr, "shares a GPU: %d\n", mesh->shares_gpus());
    train(*mesh, has);
    mesh->control().barrier();
    return 0;
  } catch (const std::exception& error) {
    std::printf("error: %s\n", error.what());
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
