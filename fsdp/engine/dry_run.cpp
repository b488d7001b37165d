#include "fsdp/engine/dry_run.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/ScalarType.h>
#include <c10/core/WrapDimMinimal.h>
#include <c10/util/strides.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

namespace fsdp {
namespace {

using c10::DispatchKey;
using c10::IValue;
using torch::jit::Stack;

constexpr DispatchKey kDry = DispatchKey::Fake;
constexpr std::size_t kMostCleared = 128 << 10;

/// Operations that write to an argument in place and change its sizes, strides or storage, not its values.
constexpr auto kOfMetadata = std::to_array<std::string_view>(
    {"aten::resize_", "aten::resize_as_", "aten::_resize_output_", "aten::set_", "aten::as_strided_", "aten::t_",
     "aten::transpose_", "aten::swapdims_", "aten::squeeze_", "aten::unsqueeze_", "aten::detach_", "aten::rename_",
     "aten::requires_grad_", "aten::set_data"});

bool writes(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

bool is_tensor(const c10::Argument& argument) {
  return argument.type()->isSubtypeOf(*c10::TensorType::get()) ||
         argument.type()->isSubtypeOf(*c10::ListType::ofTensors());
}

/// True if the operation changes values of its arguments. Results of `out=` are not meant.
bool is_in_place(const c10::FunctionSchema& schema) {
  const auto& all = schema.arguments();
  return std::any_of(all.begin(), all.end(), writes) &&
         std::none_of(all.begin(), all.end(), [](const auto& a) { return writes(a) && a.kwarg_only(); });
}

/// True if the operation only looks at sizes: its results are views, memory without values, or no tensors.
bool is_harmless(const c10::FunctionSchema& schema) {
  const std::string& name = schema.name();
  if (name == "aten::empty" || name == "aten::empty_strided") return true;
  const auto& results = schema.returns();
  if (std::none_of(results.begin(), results.end(), is_tensor)) return name != "aten::_local_scalar_dense";
  return std::all_of(results.begin(), results.end(), [](const auto& r) { return r.alias_info() && !writes(r); });
}

at::Tensor on_cpu(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype) {
  return at::Tensor(at::detail::empty_strided_cpu(sizes, strides, dtype, /*pin_memory=*/false));
}

at::Tensor on_cpu(at::IntArrayRef sizes, at::ScalarType dtype) {
  return on_cpu(sizes, c10::contiguous_strides(sizes), dtype);
}

at::Tensor on_meta(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  at::Tensor meta(at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type()));
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) meta.unsafeGetTensorImpl()->set_wrapped_number(true);
  return meta;
}

at::Tensor from_meta(const at::Tensor& meta) {
  return meta.defined() ? on_cpu(meta.sizes(), meta.strides(), meta.scalar_type()) : meta;
}

/// The value with `change` made to each of its tensors.
template <typename Change>
IValue changed(const IValue& value, const Change& change) {
  if (value.isTensor()) return change(value.toTensor());
  if (!value.isTensorList()) return value;
  std::vector<at::Tensor> all;
  for (const at::Tensor& tensor : value.toTensorVector()) all.push_back(change(tensor));
  return all;
}

std::vector<at::Tensor> tensors_of(const IValue& value) {
  if (value.isTensor()) return {value.toTensor()};
  if (value.isTensorList()) return value.toTensorVector();
  return {};
}

/// The copies that a pointwise kernel of the CPU makes of arguments whose dtype is not the one it computes in.
std::vector<at::Tensor> copies_of_mixed(const c10::OperatorHandle& op, c10::ArrayRef<IValue> arguments) {
  if (!op.hasTag(at::Tag::pointwise) || op.schema().name() == "aten::copy_") return {};
  std::vector<std::pair<at::Tensor, bool>> given;
  std::optional<at::ScalarType> common;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].isTensor()) continue;
    const at::Tensor& tensor = arguments[i].toTensor();
    if (!tensor.defined() || tensor.dim() == 0 || !tensor.is_floating_point()) continue;
    given.emplace_back(tensor, writes(op.schema().arguments()[i]));
    common = common ? c10::promoteTypes(*common, tensor.scalar_type()) : tensor.scalar_type();
  }
  std::vector<at::Tensor> copies;
  for (const auto& [tensor, is_result] : given) {
    if (tensor.scalar_type() == *common) continue;
    for (int copy = 0; copy < 1 + is_result; ++copy) copies.push_back(on_cpu(tensor.sizes(), *common));
  }
  return copies;
}

/// The argument that a result is, such as `self` of add_(); null: the result is a new one.
const IValue* written(const c10::FunctionSchema& schema, const c10::Argument& result,
                      const std::vector<IValue>& given) {
  if (!writes(result)) return nullptr;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    if (alias != nullptr && alias->beforeSets() == result.alias_info()->beforeSets()) return &given[i];
  }
  return nullptr;
}

std::vector<IValue> take_arguments(const c10::FunctionSchema& schema, Stack& stack) {
  const std::size_t count = schema.arguments().size();
  const auto last = torch::jit::last(stack, count);
  std::vector<IValue> given(last.begin(), last.end());
  torch::jit::drop(stack, count);
  return given;
}

/// Returns the arguments that the operation would have changed.
void leave_values(const c10::FunctionSchema& schema, Stack& stack) {
  const auto given = take_arguments(schema, stack);
  for (const c10::Argument& result : schema.returns()) {
    const IValue* argument = written(schema, result, given);
    TORCH_CHECK(argument != nullptr, "dry run: ", schema.name(), " returns something besides the arguments it changes");
    stack.push_back(*argument);
  }
}

/// Gives the results of an operation that LibTorch lacks on the meta device. Null: the operation is not known.
using Results = std::function<std::vector<IValue>(const std::vector<IValue>&)>;
const Results* results_of(const std::string& name) {
  static const std::map<std::string, Results> known = {
      {"aten::_local_scalar_dense",
       [](const auto& given) -> std::vector<IValue> {
         const at::ScalarType dtype = given[0].toTensor().scalar_type();
         if (dtype == at::kBool) return {true};
         return {c10::isFloatingType(dtype) ? at::Scalar(1.0) : at::Scalar(1)};
       }},
      {"aten::index_select",
       [](const auto& given) -> std::vector<IValue> {
         const at::Tensor table = given[0].toTensor();
         std::vector<std::int64_t> sizes = table.sizes().vec();
         if (!sizes.empty()) sizes[c10::maybe_wrap_dim(given[1].toInt(), table.dim())] = given[2].toTensor().numel();
         return {on_cpu(sizes, table.scalar_type())};
       }},
      {"aten::where",
       [](const auto& given) -> std::vector<IValue> {
         const at::Tensor a = given[1].toTensor(), b = given[2].toTensor();
         const auto sizes = at::infer_size(at::infer_size(a.sizes(), b.sizes()), given[0].toTensor().sizes());
         return {on_cpu(sizes, c10::promoteTypes(a.scalar_type(), b.scalar_type()))};
       }},
      {"aten::embedding_dense_backward",
       [](const auto& given) -> std::vector<IValue> {
         const at::Tensor gradient = given[0].toTensor();
         return {on_cpu({given[2].toInt(), gradient.size(-1)}, gradient.scalar_type())};
       }},
      {"aten::native_layer_norm",
       [](const auto& given) -> std::vector<IValue> {
         const at::Tensor input = given[0].toTensor();
         std::vector<std::int64_t> sizes = input.sizes().vec();
         std::fill(sizes.end() - static_cast<std::ptrdiff_t>(given[1].toIntVector().size()), sizes.end(), 1);
         const at::ScalarType sums = input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
         return {on_cpu(input.sizes(), input.scalar_type()), on_cpu(sizes, sums), on_cpu(sizes, sums)};
       }},
      {"aten::native_layer_norm_backward",
       [](const auto& given) -> std::vector<IValue> {
         const std::size_t inputs[] = {1, 5, 6};  // input, weight, bias
         const auto wanted = given[7].toBoolList();
         std::vector<IValue> gradients;
         for (std::size_t i = 0; i < 3; ++i) {
           const at::Tensor of = given[inputs[i]].isTensor() ? given[inputs[i]].toTensor() : at::Tensor();
           gradients.emplace_back(wanted[i] && of.defined() ? on_cpu(of.sizes(), of.scalar_type()) : at::Tensor());
         }
         return gradients;
       }},
      // The kernel writes [batch, positions, heads, size] and [batch, positions, heads], and returns them transposed.
      {"aten::_scaled_dot_product_flash_attention_for_cpu",
       [](const auto& given) -> std::vector<IValue> {
         const at::Tensor q = given[0].toTensor(), v = given[2].toTensor();
         const at::ScalarType sums = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
         return {on_cpu({q.size(0), q.size(2), q.size(1), v.size(3)}, q.scalar_type()).transpose(1, 2),
                 on_cpu({q.size(0), q.size(2), q.size(1)}, sums).transpose(1, 2)};
       }},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward",
       [](const auto& given) -> std::vector<IValue> {
         std::vector<IValue> gradients;
         for (std::size_t i = 1; i <= 3; ++i) {
           const at::Tensor t = given[i].toTensor();
           gradients.emplace_back(
               on_cpu({t.size(0), t.size(2), t.size(1), t.size(3)}, t.scalar_type()).transpose(1, 2));
         }
         return gradients;
       }},
  };
  const auto found = known.find(name);
  return found == known.end() ? nullptr : &found->second;
}

/// Asks the meta device for the sizes of the results, and gives them memory.
void call_for_sizes(const c10::OperatorHandle& op, Stack& stack) {
  const auto& schema = op.schema();
  const auto given = take_arguments(schema, stack);
  for (const IValue& value : given) stack.push_back(changed(value, on_meta));
  const c10::impl::ExcludeDispatchKeyGuard real(kDry);
  const at::AutoDispatchBelowADInplaceOrView below;
  op.redispatchBoxed(c10::DispatchKeySet(DispatchKey::Meta), &stack);
  const std::size_t first = stack.size() - schema.returns().size();
  for (std::size_t i = 0; i < schema.returns().size(); ++i) {
    IValue& result = stack[first + i];
    if (const IValue* out = written(schema, schema.returns()[i], given); out != nullptr && out->isTensor()) {
      if (out->toTensor().sizes() != result.toTensor().sizes()) out->toTensor().resize_(result.toTensor().sizes());
      result = *out;
    } else {
      result = changed(result, from_meta);
    }
  }
}

bool clears_little(const c10::FunctionSchema& schema, const Stack& stack) {
  return schema.name() == "aten::zero_" && stack.back().isTensor() && stack.back().toTensor().nbytes() <= kMostCleared;
}

/// A pointwise operation: its result has the arguments' common sizes and dtype, or those of an `out=`.
void call_pointwise(const c10::FunctionSchema& schema, Stack& stack) {
  const auto given = take_arguments(schema, stack);
  std::vector<std::int64_t> sizes;
  std::optional<at::ScalarType> dtype;
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (!given[i].isTensor() || !given[i].toTensor().defined() || writes(schema.arguments()[i])) continue;
    const at::Tensor& tensor = given[i].toTensor();
    sizes = at::infer_size(sizes, tensor.sizes());
    dtype = dtype ? c10::promoteTypes(*dtype, tensor.scalar_type()) : tensor.scalar_type();
  }
  for (const c10::Argument& result : schema.returns()) {
    const IValue* out = written(schema, result, given);
    stack.push_back(out != nullptr ? *out : IValue(on_cpu(sizes, *dtype)));
    const c10::impl::ExcludeDispatchKeyGuard real(kDry);
    if (out != nullptr && out->toTensor().sizes() != at::IntArrayRef(sizes)) out->toTensor().resize_(sizes);
  }
}

/// True if the operation writes into results that the caller has sized.
bool has_room(const c10::FunctionSchema& schema, c10::ArrayRef<IValue> arguments) {
  if (!std::all_of(schema.returns().begin(), schema.returns().end(), writes)) return false;
  for (std::size_t i = 0; i < arguments.size(); ++i)
    if (writes(schema.arguments()[i]) && arguments[i].isTensor() && arguments[i].toTensor().numel() == 0) return false;
  return true;
}

void call_dry(const c10::OperatorHandle& op, Stack* stack) {
  const auto& schema = op.schema();
  const auto arguments = torch::jit::last(*stack, schema.arguments().size());
  const bool meta = std::any_of(arguments.begin(), arguments.end(), [](const IValue& value) {
    const auto tensors = tensors_of(value);
    return std::any_of(tensors.begin(), tensors.end(), [](const auto& t) { return t.defined() && t.is_meta(); });
  });
  const auto run = [&](DispatchKey key) { op.redispatchBoxed(c10::DispatchKeySet(key), stack); };
  if (meta) {
    const c10::impl::ExcludeDispatchKeyGuard real(kDry);
    return run(DispatchKey::Meta);
  }
  if (is_in_place(schema)) {
    const bool of_metadata = std::find(kOfMetadata.begin(), kOfMetadata.end(), schema.name()) != kOfMetadata.end();
    if (of_metadata || clears_little(schema, *stack)) {
      const c10::impl::ExcludeDispatchKeyGuard real(kDry);
      return run(DispatchKey::CPU);
    }
    const auto copies = copies_of_mixed(op, arguments);
    return leave_values(schema, *stack);
  }
  // An operation made of others calls them, and those come here.
  if (is_harmless(schema) || !op.hasKernelForDispatchKey(DispatchKey::CPU)) return run(DispatchKey::CPU);
  const auto copies = copies_of_mixed(op, arguments);
  if (op.hasKernelForDispatchKey(DispatchKey::Meta)) return call_for_sizes(op, *stack);
  if (const Results* results = results_of(schema.name())) {
    const auto given = take_arguments(schema, *stack);
    for (IValue& result : (*results)(given)) stack->push_back(std::move(result));
    return;
  }
  if (op.hasTag(at::Tag::pointwise)) return call_pointwise(schema, *stack);
  // The sizes are right, though a kernel of its own may need less on the way.
  for (const DispatchKey made_of : {DispatchKey::CompositeExplicitAutograd, DispatchKey::CompositeImplicitAutograd})
    if (op.hasKernelForDispatchKey(made_of)) return op.callBoxedForDispatchKey(made_of, *stack);
  TORCH_CHECK(has_room(schema, arguments), "dry run: the sizes of what ", schema.name(),
              " returns are not known without computing it; use an operation that the meta device has, or add a rule "
              "to fsdp/engine/dry_run.cpp");
  leave_values(schema, *stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&call_dry>());
}

DryRunGuard::DryRunGuard() : guard_(kDry) {}

bool DryRunGuard::is_active() {
  return c10::impl::tls_is_dispatch_key_included(kDry);
}

}  // namespace fsdp
