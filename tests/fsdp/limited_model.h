#pragma once
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "fsdp/engine/fully_shard.h"

/// Blocks of one square matrix each. The values tell parameter and place.
struct LimitedModel : torch::nn::Module {
  static constexpr int kBlocks = 16;
  static constexpr std::int64_t kWidth = 2048;
  static constexpr std::int64_t kBytes = kBlocks * kWidth * kWidth * 4;

  struct Block : torch::nn::Module {
    explicit Block(std::int64_t width) { weight = register_parameter("weight", at::empty({width, width})); }
    at::Tensor weight;
  };

  explicit LimitedModel(int count = kBlocks, std::int64_t width = kWidth) {
    for (int i = 0; i < count; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), std::make_shared<Block>(width)));
  }
  std::vector<std::shared_ptr<Block>> blocks;
};

/// The value of an element: exact in fp32, and seldom equal for two.
inline float limited_value(const std::string& name, std::int64_t place) {
  const auto seed = static_cast<std::uint32_t>(std::hash<std::string>()(name));
  return static_cast<float>((static_cast<std::uint32_t>(place) * 2654435761u + seed) >> 8);
}

inline void put_limited_values(const std::string& name, std::int64_t begin, const at::Tensor& values) {
  auto* data = values.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < values.numel(); ++i) data[i] = limited_value(name, begin + i);
}

inline void fill_limited(fsdp::ShardedModel& sharded) {
  sharded.fill([](const fsdp::ParameterInfo& parameter, std::int64_t begin, const at::Tensor& values) {
    put_limited_values(parameter.name, begin, values);
  });
}

/// Throws unless this rank's shards have the values of fill_limited().
inline void check_limited(const fsdp::ShardedModel& sharded) {
  for (const auto& unit : sharded.units()) {
    for (const auto& segment : unit->segments()) {
      for (const auto& parameter : segment->layout().parameters()) {
        const fsdp::Slice own = segment->layout().own(parameter);
        const float* data = segment->shard().const_data_ptr<float>() + own.shard_offset;
        for (std::int64_t i = 0; i < own.length; ++i)
          TORCH_CHECK(data[i] == limited_value(parameter.name, own.begin + i), parameter.name, ": element ",
                      own.begin + i, " is ", data[i]);
      }
    }
  }
}
