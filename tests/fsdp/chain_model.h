#pragma once
#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/engine/fully_shard.h"

/// Square matrices one after the other. For one row of input, activations and the gradient of one matrix are small
/// beside a unit of many matrices. So the bytes of tensors are those of the engine.
struct Chain : torch::nn::Module {
  using Wrap = std::function<at::Tensor(at::Tensor, const std::function<at::Tensor(at::Tensor)>&)>;

  Chain(std::int64_t width, int weights) {
    for (int i = 0; i < weights; ++i)
      matrices.push_back(register_parameter("weight" + std::to_string(i), at::eye(width) * 0.99));
  }

  at::Tensor forward(at::Tensor x) {
    return wrap ? wrap(std::move(x), [this](at::Tensor in) { return compute(std::move(in)); }) : compute(std::move(x));
  }

  virtual at::Tensor compute(at::Tensor x) {
    for (const at::Tensor& matrix : matrices) x = at::matmul(x, matrix.to(x.scalar_type()));
    return x;
  }

  std::vector<at::Tensor> matrices;
  Wrap wrap;
};

/// Blocks, and matrices before and after them that belong to the root.
struct ChainModel : Chain {
  ChainModel(std::int64_t width, int blocks_count, int weights_of_block, int weights_of_root)
      : Chain(width, weights_of_root) {
    for (int i = 0; i < blocks_count; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), std::make_shared<Chain>(width, weights_of_block)));
  }

  at::Tensor compute(at::Tensor x) override {
    const std::size_t half = matrices.size() / 2;
    for (std::size_t i = 0; i < half; ++i) x = at::matmul(x.to(matrices[i].scalar_type()), matrices[i]);
    for (const auto& block : blocks) x = block->forward(x);
    for (std::size_t i = half; i < matrices.size(); ++i) x = at::matmul(x.to(matrices[i].scalar_type()), matrices[i]);
    return x.to(at::kFloat).sum();
  }

  /// Makes each block a unit, and then the root, which stays gathered from forward to backward.
  void shard(fsdp::ShardedModel& sharded, fsdp::ShardOptions options) {
    const auto runs = [](std::shared_ptr<fsdp::Unit> unit) -> Wrap {
      return [unit](at::Tensor in, const auto& forward) { return unit->run(std::move(in), forward); };
    };
    for (const auto& block : blocks) block->wrap = runs(sharded.fully_shard(block, options));
    options.reshard_after_forward = false;
    wrap = runs(sharded.fully_shard(std::static_pointer_cast<ChainModel>(shared_from_this()), options));
  }

  std::vector<std::shared_ptr<Chain>> blocks;
};
