#pragma once
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "fsdp/engine/fully_shard.h"
#include "fsdp/optim/optimizers.h"

/// A model that knows nothing of sharding. Its shapes have no common divisor: width 13, hidden 29, a bias of three, a
/// scalar-like gain, tied embedding and head, a frozen and an unused parameter.
using Wrap = std::function<at::Tensor(at::Tensor, const std::function<at::Tensor(at::Tensor)>&)>;

constexpr std::int64_t kVocabulary = 19, kWidth = 13, kHidden = 29, kBatch = 12, kLength = 5;

inline at::Tensor normalise(const at::Tensor& x, const at::Tensor& gain) {
  return x * (x.pow(2).mean(-1, true) + 1e-5).rsqrt() * gain;
}

struct Block : torch::nn::Module {
  Block() {
    const auto make = [this](const char* name, at::Tensor value) { return register_parameter(name, value); };
    norm = make("norm", at::ones({kWidth}));
    up = make("up", at::randn({kHidden, kWidth}) * 0.2);
    bias = make("bias", at::randn({kHidden}) * 0.1);
    down = make("down", at::randn({kWidth, kHidden}) * 0.2);
    tiny = make("tiny", at::randn({3}) * 0.1);
    frozen = register_parameter("frozen", at::randn({5}) * 0.1, /*requires_grad=*/false);
    unused = make("unused", at::randn({7}));
  }

  at::Tensor forward(at::Tensor x) {
    return wrap ? wrap(x, [this](at::Tensor in) { return compute(in); }) : compute(x);
  }

  at::Tensor compute(const at::Tensor& x) {
    // The casts do nothing where all parameters have one dtype.
    const at::Tensor hidden = at::gelu(at::matmul(normalise(x, norm).to(up.scalar_type()), up.t()) + bias);
    return x + at::matmul(hidden.to(down.scalar_type()), down.t()) * (1 + tiny.sum() + frozen.sum());
  }

  at::Tensor norm, up, bias, down, tiny, frozen, unused;
  Wrap wrap;
};

struct SmallModel : torch::nn::Module {
  explicit SmallModel(int layers = 3) {
    embedding = register_parameter("embedding", at::randn({kVocabulary, kWidth}) * 0.5);
    for (int i = 0; i < layers; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), std::make_shared<Block>()));
    norm = register_parameter("norm", at::ones({kWidth}));
    head = register_parameter("head", embedding);
  }

  /// Mean loss of next-token prediction; tokens [batch, length + 1].
  at::Tensor forward(at::Tensor tokens) {
    return wrap ? wrap(tokens, [this](at::Tensor in) { return compute(in); }) : compute(tokens);
  }

  at::Tensor compute(const at::Tensor& tokens) {
    at::Tensor x = at::embedding(embedding, tokens.narrow(1, 0, kLength));
    for (int pass = 0; pass < passes; ++pass)
      for (const auto& block : blocks) x = block->forward(x);
    const at::Tensor logits = at::matmul(normalise(x, norm).to(head.scalar_type()), head.t()).to(at::kFloat);
    return at::cross_entropy_loss(logits.reshape({-1, kVocabulary}), tokens.narrow(1, 1, kLength).reshape({-1}));
  }

  at::Tensor embedding, norm, head;
  std::vector<std::shared_ptr<Block>> blocks;
  Wrap wrap;
  int passes = 1;  // how often the blocks run one after the other
};

/// Makes the same model on every call. Threads share the generator, so they take turns.
inline std::shared_ptr<SmallModel> make_model(std::uint64_t seed = 7, int layers = 3) {
  static std::mutex generator;
  const std::lock_guard<std::mutex> lock(generator);
  at::manual_seed(seed);
  return std::make_shared<SmallModel>(layers);
}

/// Tokens of a step, [kBatch, kLength + 1]. Pure arithmetic makes them equal on every rank.
inline at::Tensor tokens_of(std::int64_t step) {
  at::Tensor tokens = at::empty({kBatch, kLength + 1}, at::kLong);
  auto* data = tokens.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < tokens.numel(); ++i) data[i] = (i * i + 3 * step * i + i / 7 + step) % kVocabulary;
  return tokens;
}

inline at::Tensor part_of(const at::Tensor& batch, int part, int parts) {
  const std::int64_t rows = batch.size(0) / parts;
  return batch.narrow(0, part * rows, rows);
}

inline Wrap wrapper(std::shared_ptr<fsdp::Unit> unit) {
  return [unit](at::Tensor input, const std::function<at::Tensor(at::Tensor)>& forward) {
    return unit->run(std::move(input), forward);
  };
}

/// The segment of a unit whose parameters train.
inline fsdp::Segment& trainable_part(const fsdp::Unit& unit) {
  return *unit.segments().front();
}

/// Elements of one rank's shard of a unit.
inline std::int64_t chunk_of(const fsdp::Unit& unit) {
  std::int64_t chunk = 0;
  for (const auto& segment : unit.segments()) chunk += segment->layout().chunk();
  return chunk;
}

using MakeOptimizer = std::function<std::unique_ptr<fsdp::Optimizer>(fsdp::ShardedModel&)>;

template <class Made, class Options>
MakeOptimizer maker(const Options& options) {
  return [options](fsdp::ShardedModel& model) { return std::make_unique<Made>(model, options); };
}

/// One rank's sharded copy of the model with its optimizer.
struct Trainer {
  explicit Trainer(fsdp::DeviceMesh& m, fsdp::ShardOptions options = {}, std::uint64_t seed = 7,
                   const MakeOptimizer& make = maker<fsdp::AdamW>(fsdp::AdamWOptions()))
      : mesh(m), model(make_model(seed)), sharded(model, mesh) {
    for (const auto& block : model->blocks) block->wrap = wrapper(sharded.fully_shard(block, options));
    options.reshard_after_forward = false;
    model->wrap = wrapper(sharded.fully_shard(model, options));
    optimizer = make(sharded);
  }

  /// Forward and backward on this rank's share; returns the loss over all ranks.
  double accumulate(const at::Tensor& batch, double scale = 1) {
    const at::Tensor loss = model->forward(part_of(batch, mesh.rank(), mesh.world_size()).to(mesh.device()));
    (loss * scale).backward();
    return mesh.control().all_reduce(loss.item<double>()) / mesh.world_size();
  }

  double step(std::int64_t step, double lr = 1e-2) {
    const double loss = accumulate(tokens_of(step));
    optimizer->step(lr);
    sharded.zero_grad();
    return loss;
  }

  fsdp::DeviceMesh& mesh;
  std::shared_ptr<SmallModel> model;
  fsdp::ShardedModel sharded;
  std::unique_ptr<fsdp::Optimizer> optimizer;
};

/// The unsharded reference: plain autograd and PyTorch's fused AdamW, one tensor per parameter.
struct Reference {
  explicit Reference(std::uint64_t seed = 7, c10::Device device = c10::kCPU) : model(make_model(seed)) {
    for (at::Tensor& parameter : model->parameters()) parameter.set_data(parameter.to(device));
    at::set_num_threads(1);  // as on the ranks, because threads change the order of sums
    for (const auto& item : model->named_parameters()) {
      if (!item.value().requires_grad() || item.key() == "head") continue;  // head is tied to the embedding
      parameters.push_back(item.value());
      exp_avg.push_back(at::zeros_like(item.value()));
      exp_avg_sq.push_back(at::zeros_like(item.value()));
      steps.push_back(0);
    }
  }

  double accumulate(const at::Tensor& batch) {
    const at::Tensor loss = model->forward(batch.to(parameters.front().device()));
    loss.backward();
    return loss.item<double>();
  }

  void update(double lr, const fsdp::AdamWOptions& o = {}) {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      at::Tensor& p = parameters[i];
      if (!p.grad().defined()) continue;
      at::_fused_adamw_({p}, {p.grad()}, {exp_avg[i]}, {exp_avg_sq[i]}, {},
                        {at::scalar_tensor(++steps[i], p.options())}, lr, o.beta1, o.beta2,
                        p.dim() >= 2 ? o.weight_decay : 0.0, o.eps, false, false);
      p.mutable_grad() = at::Tensor();
    }
  }

  double step(std::int64_t step, double lr = 1e-2) {
    const double loss = accumulate(tokens_of(step));
    update(lr);
    return loss;
  }

  std::shared_ptr<SmallModel> model;
  std::vector<at::Tensor> parameters, exp_avg, exp_avg_sq;
  std::vector<std::int64_t> steps;
};

/// The unsharded reference in mixed precision: fp32 masters, copies of other dtypes for forward and backward, and an
/// fp32 update. Inputs of blocks are cast to `inputs`, as units do.
struct MixedReference {
  explicit MixedReference(std::function<at::ScalarType(const at::Tensor&)> dtype_of,
                          at::ScalarType inputs = at::kBFloat16)
      : masters(7), copies(7) {
    dtype = std::move(dtype_of);
    for (const auto& block : copies.model->blocks)
      block->wrap = [inputs](const at::Tensor& x, const auto& forward) { return forward(x.to(inputs)); };
  }
  double step(int step, double lr = 1e-2) {
    auto values = copies.model->named_parameters();
    for (const auto& item : masters.model->named_parameters()) {
      at::Tensor& copy = values[item.key()];
      copy.mutable_grad() = at::Tensor();
      copy.set_data(item.value().detach().to(dtype(item.value()), /*non_blocking=*/false, /*copy=*/true));
    }
    const double loss = copies.accumulate(tokens_of(step));
    for (const auto& item : masters.model->named_parameters())
      if (values[item.key()].grad().defined()) item.value().mutable_grad() = values[item.key()].grad().to(at::kFloat);
    masters.update(lr);
    return loss;
  }
  Reference masters, copies;
  std::function<at::ScalarType(const at::Tensor&)> dtype;
};

/// Leaves the last block out in the first two steps and in the sixth, so its parameters have no gradient there.
/// `all`: every block.
inline void choose_blocks(SmallModel& model, const std::vector<std::shared_ptr<Block>>& all, int step) {
  model.blocks = all;
  if (step < 2 || step == 5) model.blocks.pop_back();
}

inline double relative(double a, double b) {
  return std::abs(a - b) / std::max(1e-30, std::abs(b));
}

/// The largest difference of any element, relative to the largest element of the reference.
inline double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>() / std::max(1e-30, b.abs().max().item<double>());
}
