#pragma once
#include <c10/core/impl/LocalDispatchKeySet.h>

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
/// As `with torch.device("meta")` of PyTorch, in the way of torchdistx's deferred_init: a fallback at the dispatch key
/// DeferredInit.
class MetaDeviceGuard {
 public:
  MetaDeviceGuard();

 private:
  c10::impl::IncludeDispatchKeyGuard guard_;
};

}  // namespace fsdp
