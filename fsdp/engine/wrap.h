#pragma once
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "fsdp/engine/fully_shard.h"

namespace fsdp {

// Which modules of a model become units, chosen by type, size or any predicate, as the auto_wrap_policy of PyTorch's
// FSDP1. wrap() shards the chosen modules, children before their parents, and the root last.
//
// [Note: wrapper points] A module of LibTorch has no hooks around its forward. So the model itself must call through
// something that a unit can take the place of: its wrapper point. WrapPoint is one way to offer it, and WrapPointOf
// lets models keep their own. wrap() refuses a chosen module without a wrapper point, because its parameters would be
// freed and never gathered.

/// A part of a model as a function of its tensors, and what may stand around it. A wrapper returns what `forward`
/// returns.
using WrappedCall = std::function<std::vector<at::Tensor>(std::vector<at::Tensor>)>;
using Wrapper = std::function<std::vector<at::Tensor>(std::vector<at::Tensor>, const WrappedCall& forward)>;

/// A base of modules whose forward goes through call():
///
///   struct Block : torch::nn::Module, fsdp::WrapPoint {
///     at::Tensor forward(at::Tensor x) {
///       return call({x}, [this](std::vector<at::Tensor> in) { return std::vector{compute(in[0])}; })[0];
///     }
///   };
class WrapPoint {
 public:
  virtual ~WrapPoint() = default;
  void set_wrapper(Wrapper wrapper) { wrapper_ = std::move(wrapper); }

 protected:
  /// Calls `forward` through the wrapper, or directly while there is none.
  std::vector<at::Tensor> call(std::vector<at::Tensor> inputs, const WrappedCall& forward) const {
    return wrapper_ ? wrapper_(std::move(inputs), forward) : forward(std::move(inputs));
  }

 private:
  Wrapper wrapper_;
};

/// Finds the wrapper point of a module: a function that puts a wrapper there; null when the module has none.
using SetWrapper = std::function<void(Wrapper)>;
using WrapPointOf = std::function<SetWrapper(torch::nn::Module&)>;

/// Finds WrapPoint.
SetWrapper wrap_point(torch::nn::Module& module);

/// Which modules become units. `numel` counts the elements of a module's parameters, tied ones once.
struct WrapPolicy {
  using Answer = std::function<bool(const torch::nn::Module& module, std::int64_t numel)>;
  /// Tells whether to look at a module's children and at the module itself. `numel` counts all its parameters.
  Answer look_inside;
  /// Tells whether the module becomes a unit. `numel` counts the parameters that lie in no unit of its children.
  Answer choose;
};

/// The modules for which `predicate` is true: lambda_auto_wrap_policy of PyTorch.
WrapPolicy wrap_by_predicate(std::function<bool(const torch::nn::Module&)> predicate);

/// The modules of these types: transformer_auto_wrap_policy of PyTorch. Types are Impl classes, such as
/// torch::nn::TransformerEncoderLayerImpl.
template <class... Types>
WrapPolicy wrap_by_type() {
  static_assert(sizeof...(Types) > 0, "name the types to wrap");
  return wrap_by_predicate(
      [](const torch::nn::Module& module) { return (... || (dynamic_cast<const Types*>(&module) != nullptr)); });
}

/// The modules whose parameters outside of chosen children have at least `min_numel` elements:
/// size_based_auto_wrap_policy of PyTorch. Nothing inside of a module of `leaf` is chosen, nor the module itself, and
/// no module of `exclude`, though its children may be. Null: PyTorch's defaults, which are MultiheadAttention for
/// `leaf`, and ModuleList and ModuleDict for `exclude`.
WrapPolicy wrap_by_size(std::int64_t min_numel, std::function<bool(const torch::nn::Module&)> leaf = {},
                        std::function<bool(const torch::nn::Module&)> exclude = {});

/// The modules in and including `root` that `policy` chooses, children before their parents, in the order of
/// registration. A module that is registered twice comes once.
std::vector<std::shared_ptr<torch::nn::Module>> modules_to_wrap(const std::shared_ptr<torch::nn::Module>& root,
                                                                const WrapPolicy& policy);

struct WrapOptions {
  ShardOptions children = {};
  /// Unset: as children, but not freed between forward and backward, because backward needs the root first.
  std::optional<ShardOptions> root = std::nullopt;
  /// The options of one unit, from those that `children` or `root` give it, such as another precision of some modules.
  /// Called for each unit, before anything is sharded. Must answer alike on every rank. Null: those stay.
  std::function<ShardOptions(const torch::nn::Module& unit, ShardOptions given)> options_of = {};
  /// Further modules whose parameters join the unit of a chosen module, because its call uses them, too; see
  /// ShardedModel::fully_shard(). Null: there are none.
  std::function<std::vector<std::shared_ptr<torch::nn::Module>>(const torch::nn::Module& unit)> with = {};
  /// How modules offer their wrapper points. Null: wrap_point.
  WrapPointOf wrap_point_of = {};
};

/// Makes a unit of each module in `root` that `policy` chooses, and of `root` itself whatever the policy says, and puts
/// each unit at its module's wrapper point. `root` is the module that `sharded` was made with. Returns the units,
/// children before their parents, the root last. Throws c10::Error, before anything is sharded, that names a module
/// without a wrapper point; and as ShardedModel::fully_shard().
std::vector<std::shared_ptr<Unit>> wrap(ShardedModel& sharded, const std::shared_ptr<torch::nn::Module>& root,
                                        const WrapPolicy& policy, const WrapOptions& options = {});

}  // namespace fsdp
