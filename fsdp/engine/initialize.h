#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <string>

#include "fsdp/engine/fully_shard.h"

namespace fsdp {

/// While it lives, tensors that this thread makes without naming a device lie on the meta device: they have sizes and a
/// dtype, but no bytes. So a module of any size is built without memory:
///
///   const auto model = [&] { const fsdp::MetaDeviceGuard guard; return std::make_shared<Model>(config); }();
///
/// fully_shard() then makes the shards alone. The parameters have no values until initialize(), load_tensors() or a
/// checkpoint gives them some. A buffer wants a device, such as `at::arange(n, at::device(at::kCPU))`, because nothing
/// gives it values later. Values are lost that the constructor gives to parameters. A constructor that reads a value
/// (item()) throws.
///
/// Counterpart of PyTorch's `with torch.device("meta")`, in the way of torchdistx's deferred_init: a fallback at the
/// dispatch key DeferredInit.
class MetaDeviceGuard {
 public:
  MetaDeviceGuard();

 private:
  c10::impl::IncludeDispatchKeyGuard guard_;
};

/// Draws first values for elements of the parameter `name` into `values`, fp32 [n] on the CPU, in place:
///   [](const std::string&, const at::Tensor& values, at::Generator& random) { values.normal_(0, 0.02, random); }
/// The elements of a parameter must be drawn alike, because a call sees only some of them.
using Draw = std::function<void(const std::string& name, const at::Tensor& values, at::Generator& random)>;

/// A parameter is drawn in blocks of so many elements, each with random numbers of its own.
inline constexpr std::int64_t kDrawnBlock = std::int64_t{1} << 16;

/// Draws the values of all parameters. An element's value depends on `seed`, the parameter's name, its shape and the
/// element's place alone: not on the world size, on units, or on the order of parameters. Each rank draws what it owns
/// and at most two blocks more for each parameter. A tied parameter is drawn under its first name. Not collective.
/// Parameters for which `only` is false keep their values, such as those that load_tensors() has read. Null: all are
/// drawn.
void initialize(ShardedModel& model, std::uint64_t seed, const Draw& draw,
                const std::function<bool(const std::string& name)>& only = {});

/// Draws the same values for a module that is not sharded. Its parameters are fp32 on the CPU.
void initialize(torch::nn::Module& module, std::uint64_t seed, const Draw& draw);

}  // namespace fsdp
