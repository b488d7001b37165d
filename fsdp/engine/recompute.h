#pragma once
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace fsdp {

/// A part of a model: tensors in, tensors out.
using Part = std::function<std::vector<at::Tensor>(std::vector<at::Tensor>)>;

class HostActivations;

/// How much of a part is given up, and where the rest waits for backward.
struct RecomputeOptions {
  /// Operations whose results are kept, by the names that the model gives them; see fsdp/engine/kept_results.h. Less is
  /// computed again, and more memory is held.
  std::set<std::string, std::less<>> keep = {};
  /// The place in the host's memory where all that is kept waits; null: it waits on the device. Parts that run one
  /// after the other share it.
  std::shared_ptr<HostActivations> host = nullptr;
};

/// Activation checkpointing: calls `forward` without keeping its activations, and calls it again in backward (Chen et
/// al., Training Deep Nets with Sublinear Memory Cost, 2016), as torch.utils.checkpoint with use_reentrant=True does.
/// Only the inputs are kept, and what `options` say. The result and all gradients are bitwise those of a plain call;
/// random numbers are drawn again from the state that the first call saw.
///
/// Call it inside of the run() of the unit that owns the parameters: backward has gathered them when forward is called
/// again, so recomputing costs no collective.
///
/// `module` owns the parameters that `forward` uses. When one of them needs a gradient, the call is recorded even where
/// no input needs one (a frozen embedding before a block that trains). `forward` must take every other tensor that
/// needs a gradient as an input, because what it captures gets none. Undefined inputs pass through.
///
/// Throws c10::Error for an undefined output. The backward throws c10::Error with create_graph, because a recomputed
/// part has no second derivative. torch::autograd::grad() gives gradients of inputs only; those of parameters are
/// accumulated.
std::vector<at::Tensor> recompute(std::vector<at::Tensor> inputs, const Part& forward, const torch::nn::Module& module,
                                  const RecomputeOptions& options = {});

}  // namespace fsdp
