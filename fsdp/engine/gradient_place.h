#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>

namespace fsdp {

// [Note: first gradients] A backward of a unit has memory for gradients, the input of the unit's reduction, whose old
// values nobody clears. A parameter has no gradient until its first one comes. That one is written to the parameter's
// part of the memory, and later ones are added there. Autograd makes each gradient in memory of its own, from where the
// engine copies it. A function that computes a gradient itself can write it to its place at once: it asks
// place_of_gradient(), writes, and makes the memory the parameter's gradient. So nothing is cleared, added or copied.
// Parts that got no gradient are cleared when the unit's backward ends.

/// The memory for the first gradient of `parameter`, of its shape and of the unit's reduce dtype, with unknown values.
/// The caller must write all of it in this backward and then set it as parameter.mutable_grad(). An undefined tensor:
/// the parameter waits for no first gradient now, or, without `any_dtype`, the memory is of another dtype than the
/// parameter. Null: the engine does not look after this parameter's gradient. Not thread-safe; call it in the
/// parameter's own backward.
std::optional<at::Tensor> place_of_gradient(const at::Tensor& parameter, bool any_dtype = false);

/// Where a parameter's gradient belongs: see [Note: first gradients].
struct GradientPlace {
  at::Tensor view;         // of the parameter's shape; it has memory only while the unit has gradients
  bool is_fresh = false;   // the unit's backward runs, and the view had no gradient when it began
  bool is_filled = false;  // a first gradient has come since then, or somebody has taken the place to write it
};

/// Lets autograd bring first gradients of `parameter` to `place`. False: the parameter has a hook of somebody else
/// there, which stays, so the parameter needs a gradient of zeros that autograd adds to.
bool bring_gradients(const at::Tensor& parameter, std::shared_ptr<GradientPlace> place);

}  // namespace fsdp
