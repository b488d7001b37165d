#pragma once

namespace worker::kernels {

/// The dtype of a kernel's tensors.
enum class Number { kFloat, kHalf, kBFloat16 };

}  // namespace worker::kernels
