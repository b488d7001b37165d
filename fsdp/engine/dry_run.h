#pragma once
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace fsdp {

/// While it lives, operations on tensors of this thread compute nothing. Results have their sizes, dtypes and memory on
/// the CPU, and unknown values. So a step of any model allocates and frees what a real step does, in milliseconds. The
/// pages of the memory are never touched, so the kernel gives none:
///
///   fsdp::CountTensorBytes counts;
///   const fsdp::DryRunGuard guard;
///   model->forward(ids).sum().backward();
///   std::cout << counts.bytes().peak();
///
/// Autograd, views and allocations are real. item() gives 1. zero_() really clears tensors of up to 128 KiB, because
/// code of the host reads small tables. Pass no values on that matter: weights and data keep their values, and what is
/// computed from them has none.
///
/// Known without computing: every operation that LibTorch has on the meta device, operations made of such, and those
/// that fsdp/engine/dry_run.cpp adds. Another one throws c10::Error with its name. Not counted is what a CPU kernel
/// allocates for itself, such as the buffer of a few hundred KiB in which attention has its scores; but counted are the
/// copies that a pointwise operation of mixed dtypes makes of its arguments.
///
/// Counterpart of PyTorch's FakeTensorMode, in the way of torchdistx's fake tensors: a fallback at the dispatch key
/// Fake, below autograd.
class DryRunGuard {
 public:
  DryRunGuard();
  /// True on a thread that has a guard. Code that reads and writes memory by itself computes nothing then.
  static bool is_active();

 private:
  c10::impl::IncludeDispatchKeyGuard guard_;
};

}  // namespace fsdp
