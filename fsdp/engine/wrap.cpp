#include "fsdp/engine/wrap.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>

#include <algorithm>
#include <string>

#include "fsdp/engine/layout.h"

namespace fsdp {
namespace {

using Module = torch::nn::Module;
using Modules = std::vector<std::shared_ptr<Module>>;

bool is_attention(const Module& module) {
  return dynamic_cast<const torch::nn::MultiheadAttentionImpl*>(&module) != nullptr;
}

bool is_list(const Module& module) {
  return dynamic_cast<const torch::nn::ModuleListImpl*>(&module) != nullptr ||
         dynamic_cast<const torch::nn::ModuleDictImpl*>(&module) != nullptr;
}

std::int64_t numel_of(const Module& module) {
  std::vector<const void*> counted;
  std::int64_t sum = 0;
  for (const auto& [name, tensor] : parameter_names(module)) {
    if (std::find(counted.begin(), counted.end(), tensor.unsafeGetTensorImpl()) != counted.end()) continue;
    counted.push_back(tensor.unsafeGetTensorImpl());
    sum += tensor.numel();
  }
  return sum;
}

/// Adds what is chosen in and including `module`. Returns the elements that lie in chosen modules. The walk is
/// _recursive_wrap() of torch.distributed.fsdp.wrap.
std::int64_t add_chosen(const std::shared_ptr<Module>& module, const WrapPolicy& policy, Modules& chosen) {
  const std::int64_t numel = numel_of(*module);
  if (!policy.look_inside(*module, numel)) return 0;
  if (std::find(chosen.begin(), chosen.end(), module) != chosen.end()) return numel;
  std::int64_t inside = 0;
  for (const auto& child : module->children()) inside += add_chosen(child, policy, chosen);
  if (!policy.choose(*module, numel - inside)) return inside;
  chosen.push_back(module);
  return numel;
}

std::string path_of(const Module& root, const Module& module) {
  for (const auto& item : root.named_modules())
    if (item.value().get() == &module) return item.key().empty() ? "root" : item.key();
  return "root";
}

}  // namespace

SetWrapper wrap_point(Module& module) {
  auto* point = dynamic_cast<WrapPoint*>(&module);
  if (point == nullptr) return {};
  return [point](Wrapper wrapper) { point->set_wrapper(std::move(wrapper)); };
}

WrapPolicy wrap_by_predicate(std::function<bool(const Module&)> predicate) {
  return {[](const Module&, std::int64_t) { return true; },
          [predicate = std::move(predicate)](const Module& module, std::int64_t) { return predicate(module); }};
}

WrapPolicy wrap_by_size(std::int64_t min_numel, std::function<bool(const Module&)> leaf,
                        std::function<bool(const Module&)> exclude) {
  TORCH_CHECK(min_numel > 0, "wrap_by_size: min_numel ", min_numel, ": want 1 or more");
  if (!leaf) leaf = is_attention;
  if (!exclude) exclude = is_list;
  const auto where_not = [min_numel](std::function<bool(const Module&)> excepted) {
    return [min_numel, excepted = std::move(excepted)](const Module& module, std::int64_t numel) {
      return numel >= min_numel && !excepted(module);
    };
  };
  return {where_not(std::move(leaf)), where_not(std::move(exclude))};
}

Modules modules_to_wrap(const std::shared_ptr<Module>& root, const WrapPolicy& policy) {
  TORCH_CHECK(root && policy.look_inside && policy.choose, "modules_to_wrap: no module or no policy");
  Modules chosen;
  add_chosen(root, policy, chosen);
  return chosen;
}

std::vector<std::shared_ptr<Unit>> wrap(ShardedModel& sharded, const std::shared_ptr<Module>& root,
                                        const WrapPolicy& policy, const WrapOptions& options) {
  Modules chosen = modules_to_wrap(root, policy);
  if (chosen.empty() || chosen.back() != root) chosen.push_back(root);
  ShardOptions of_root = options.root.value_or(options.children);
  if (!options.root) of_root.reshard_after_forward = false;
  std::vector<SetWrapper> points;
  std::vector<ShardOptions> given;
  for (const auto& module : chosen) {
    points.push_back(options.wrap_point_of ? options.wrap_point_of(*module) : wrap_point(*module));
    TORCH_CHECK(points.back(), "wrap: module ", path_of(*root, *module), " (", module->name(),
                ") has no wrapper point, so nothing would gather its parameters; derive it from fsdp::WrapPoint, pass "
                "WrapOptions::wrap_point_of, or choose another module");
    given.push_back(module == root ? of_root : options.children);
    if (options.options_of) given.back() = options.options_of(*module, given.back());
  }
  std::vector<std::shared_ptr<Unit>> units;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const auto unit = sharded.fully_shard(chosen[i], given[i], options.with ? options.with(*chosen[i]) : Modules{});
    points[i]([unit](std::vector<at::Tensor> inputs, const WrappedCall& forward) {
      return unit->run_list(std::move(inputs), forward);
    });
    units.push_back(unit);
  }
  return units;
}

}  // namespace fsdp
