#pragma once
// A rank that trains the small model on a device, for tests that compare devices and orders of streams.
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/comm/transport.h"
#include "fsdp/engine/host_activations.h"
#include "fsdp/engine/initialize.h"
#include "fsdp/engine/recompute.h"
#include "fsdp/optim/grad_scaler.h"
#include "tests/fsdp/mirror_transport.h"
#include "tests/fsdp/small_model.h"

constexpr std::uint64_t kSeeds = 12;

/// How many orders a test draws.
inline std::uint64_t seeds() {
  const char* given = std::getenv("MUSTER_STREAM_SEEDS");
  return given == nullptr ? kSeeds : std::strtoull(given, nullptr, 10);
}

/// How the model is sharded, and what happens to it.
struct Case {
  std::string name;
  int rank = 0, ranks = 1;
  std::vector<fsdp::MeshAxis> axes = {};
  fsdp::ShardOptions options = {};
  bool staged = false;       // collectives go through the host
  bool recomputes = false;   // the blocks
  bool on_host = false;      // what is kept of recomputed blocks
  bool freezes = false;      // a matrix in the second step, for one step
  bool skips = false;        // the second block in each other step
  bool repeats = false;      // the blocks: they run twice, one after the other
  bool accumulates = false;  // three backward passes a step, of which the last synchronises
  bool sums = false;         // with it: each backward pass synchronises
  bool scales = false;       // the loss, by a GradScaler
  bool abandons = false;     // the second step, and begins it again
  MakeOptimizer make = maker<fsdp::AdamW>(fsdp::AdamWOptions());
};

struct Sharded {
  Sharded(fsdp::DeviceMesh& mesh, const Case& how) {
    {
      const fsdp::MetaDeviceGuard without_memory;
      model = std::make_shared<SmallModel>();
    }
    sharded = std::make_unique<fsdp::ShardedModel>(model, mesh);
    // Units of different layouts meet in one slot then.
    if (how.skips) model->blocks[1]->up.set_requires_grad(false);
    fsdp::ShardOptions options = how.options;
    fsdp::RecomputeOptions activations;
    if (how.on_host) activations.host = std::make_shared<fsdp::HostActivations>(mesh.device(), /*least_bytes=*/0);
    for (const auto& block : model->blocks) {
      const auto unit = sharded->fully_shard(block, options);
      block->wrap = how.recomputes ? recomputing(unit, *block, activations) : wrapper(unit);
    }
    options.reshard_after_forward = false;
    model->wrap = wrapper(sharded->fully_shard(model, options));
    std::map<std::string, at::Tensor> values;
    for (const auto& item : make_model()->named_parameters()) values[item.key()] = item.value();
    sharded->load_full_state(values);
    optimizer = how.make(*sharded);
    if (how.scales) scaler.emplace(mesh.device(), fsdp::GradScalerOptions{.init_scale = 1024});
  }

  static Wrap recomputing(std::shared_ptr<fsdp::Unit> unit, const Block& block, const fsdp::RecomputeOptions& options) {
    return [unit, &block, options](at::Tensor input, const auto& forward) {
      return unit->run(std::move(input), [&](at::Tensor in) {
        const auto part = [forward](std::vector<at::Tensor> list) { return std::vector<at::Tensor>{forward(list[0])}; };
        return fsdp::recompute({std::move(in)}, part, block, options)[0];
      });
    };
  }

  /// Forward and backward. The loss stays on the device. It is multiplied by `factor`, if that is defined.
  at::Tensor accumulate(const at::Tensor& tokens, const at::Tensor& factor = {}) {
    at::Tensor loss = model->forward(tokens);
    if (factor.defined()) loss = loss * factor;
    (scaler ? scaler->scale(loss) : loss).backward();
    return loss.detach();
  }

  fsdp::GradientNorm gradient_norm() {
    return scaler ? scaler->gradient_norm(*sharded, 0.5) : fsdp::gradient_norm(*sharded, 0.5);
  }

  void update() {
    const auto norm = gradient_norm();
    if (scaler) scaler->update(norm.found_inf);
    optimizer->step(1e-2, norm.grad_scale, norm.found_inf);
    sharded->zero_grad();
  }

  std::shared_ptr<SmallModel> model;
  std::unique_ptr<fsdp::ShardedModel> sharded;
  std::unique_ptr<fsdp::Optimizer> optimizer;
  std::optional<fsdp::GradScaler> scaler;
};

inline fsdp::DeviceMesh mesh_of(at::Device device, const Case& how) {
  fsdp::MeshOptions options;
  options.device = device;
  options.axes = how.axes;
  const auto make = [device, staged = how.staged](const fsdp::MeshGroup& group) -> std::unique_ptr<fsdp::Transport> {
    const at::Device of_group = group.axis == "control" ? at::Device(at::kCPU) : device;
    if (!staged || of_group.is_cpu()) return std::make_unique<MirrorTransport>(of_group, group.rank, group.size);
    return fsdp::make_staged_transport(std::make_unique<MirrorTransport>(at::kCPU, group.rank, group.size), group.rank,
                                       group.size);
  };
  return fsdp::DeviceMesh(how.rank, how.ranks, make, options);
}

using Result = std::map<std::string, at::Tensor>;

/// The first tensor whose bits differ; empty: none.
inline std::string difference(const Result& got, const Result& want) {
  for (const auto& [name, value] : want)
    if (!at::equal(got.at(name), value)) return name;
  return {};
}
