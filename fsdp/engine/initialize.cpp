#include "fsdp/engine/initialize.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <set>

#include "fsdp/engine/layout.h"
#include "fsdp/text/fnv1a.h"
#include "fsdp/text/splitmix64.h"

namespace fsdp {
namespace {

/// Gives a call the device meta wherever it takes a device and names none.
void call_on_meta(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard once(c10::DispatchKey::DeferredInit);
  const auto& arguments = op.schema().arguments();
  const std::size_t first = stack->size() - arguments.size();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue& value = (*stack)[first + i];
    if (arguments[i].name() == "device" && value.isNone()) value = c10::Device(c10::kMeta);
  }
  op.callBoxed(stack);
}

/// A generator for one block. LibTorch's own seeding uses 32 bits, and two of a model's 100,000 blocks would soon be
/// equal. So all of the generator's state comes from `seed`.
at::Generator generator_of(std::uint64_t seed) {
  at::mt19937_data_pod state = at::mt19937(1).data();
  for (std::uint32_t& word : state.state_) word = static_cast<std::uint32_t>(splitmix64(seed) >> 32);
  at::mt19937 engine(1);
  engine.set_data(state);
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>();
  generator.get<at::CPUGeneratorImpl>()->set_engine(engine);
  return generator;
}

/// Draws elements [begin, begin + values.numel()) of a parameter with `numel` elements.
void draw_part(const std::string& name, std::int64_t numel, std::int64_t begin, const at::Tensor& values,
               std::uint64_t seed, const Draw& draw) {
  // Random numbers come from the name alone, equally on every platform.
  const std::uint64_t of_name = Fnv1a(seed).add(name).value();
  const std::int64_t end = begin + values.numel();
  for (std::int64_t first = begin / kDrawnBlock * kDrawnBlock; first < end; first += kDrawnBlock) {
    const std::int64_t count = std::min(kDrawnBlock, numel - first);
    at::Generator random = generator_of(Fnv1a(of_name).add(std::to_string(first / kDrawnBlock)).value());
    // A block is drawn as a whole, because how LibTorch draws an element depends on how many there are.
    if (first >= begin && first + count <= end) {
      draw(name, values.narrow(0, first - begin, count), random);
      continue;
    }
    const at::Tensor block = at::empty({count}, values.options());
    draw(name, block, random);
    const std::int64_t from = std::max(first, begin), to = std::min(first + count, end);
    values.narrow(0, from - begin, to - from).copy_(block.narrow(0, from - first, to - from));
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(_, DeferredInit, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&call_on_meta>());
}

MetaDeviceGuard::MetaDeviceGuard() : guard_(c10::DispatchKey::DeferredInit) {}

void initialize(ShardedModel& model, std::uint64_t seed, const Draw& draw,
                const std::function<bool(const std::string& name)>& only) {
  model.fill([&](const ParameterInfo& parameter, std::int64_t begin,
                 const at::Tensor& values) { draw_part(parameter.name, parameter.numel, begin, values, seed, draw); },
             [&](const ParameterInfo& parameter) { return !only || only(parameter.name); });
}

void initialize(torch::nn::Module& module, std::uint64_t seed, const Draw& draw) {
  const at::NoGradGuard no_grad;
  std::set<const void*> done;
  for (const auto& [name, parameter] : parameter_names(module)) {
    if (!done.insert(parameter.unsafeGetTensorImpl()).second) continue;
    draw_part(name, parameter.numel(), 0, parameter.detach().view({-1}), seed, draw);
  }
}

}  // namespace fsdp
