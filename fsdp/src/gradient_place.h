#pragma once
#include <ATen/core/Tensor.h>

#include <memory>

namespace fsdp {

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
