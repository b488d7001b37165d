#pragma once
#include <c10/core/ScalarType.h>

#include <functional>
#include <optional>

#include "fsdp/engine/layout.h"

namespace fsdp {

/// The number formats of one unit. A format is kFloat, kBFloat16 or kHalf (fp16). Every rank must pass the same values.
///
/// Gradients in fp16 underflow without a scale on the loss: see GradScaler.
struct Precision {
  /// Of forward, backward and the all-gather. The shard of a trainable parameter stays the fp32 master either way. A
  /// parameter that never trains is kept in this dtype.
  at::ScalarType param_dtype = at::kFloat;
  /// Gives single parameters another dtype than param_dtype, such as fp32 norms beside bf16 matrices. Null: none.
  std::function<at::ScalarType(const ParameterInfo&)> param_dtype_of = {};
  /// In which gradients are accumulated and reduced. The sharded gradient is fp32 either way.
  at::ScalarType reduce_dtype = at::kFloat;
  /// Casts floating-point outputs of run(), recorded by autograd. Unset: outputs stay as forward made them.
  std::optional<at::ScalarType> output_dtype = std::nullopt;
  /// fully_shard() casts the module's floating-point buffers once, those of earlier units excepted. They stay in this
  /// dtype. Unset: buffers stay as they are.
  std::optional<at::ScalarType> buffer_dtype = std::nullopt;
  /// Casts floating-point inputs of run() to param_dtype.
  bool cast_inputs = true;
  /// Divides the sum of the ranks' gradients, in place of the number of ranks: 1 gives the sum instead of the mean. As
  /// set_gradient_divide_factor() of PyTorch's FSDP2. Above 0.
  std::optional<double> gradient_divide_factor = std::nullopt;
};

/// By what a gradient is divided before the sum over the ranks, and by what the sum is divided.
struct DivideFactors {
  double before = 1;
  double after = 1;
  bool operator==(const DivideFactors&) const = default;
};

/// The product of both factors is `total`, or `ranks` when it is unset. In fp32 and bf16 all is divided after the sum.
/// In fp16 a power of two near the root is divided before it, so that neither the sum overflows nor a part underflows;
/// the rule is _get_gradient_divide_factors() of PyTorch's FSDP2.
DivideFactors divide_factors(at::ScalarType reduce_dtype, int ranks, std::optional<double> total = std::nullopt);

}  // namespace fsdp
