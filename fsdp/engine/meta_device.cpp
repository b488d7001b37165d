#include "fsdp/engine/meta_device.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

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

}  // namespace

TORCH_LIBRARY_IMPL(_, DeferredInit, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&call_on_meta>());
}

MetaDeviceGuard::MetaDeviceGuard() : guard_(c10::DispatchKey::DeferredInit) {}

}  // namespace fsdp
