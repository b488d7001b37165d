#include "worker/models/fused_ops.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <torch/csrc/autograd/custom_function.h>

#ifdef MUSTER_CUDA_KERNELS
#include "worker/models/kernels/kernel_launch.h"
#include "worker/models/kernels/kernels.h"
#endif

namespace worker {
namespace {

at::Tensor rotate_plainly(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const auto halves = x.chunk(2, -1);
  return x * cos.unsqueeze(-2) + at::cat({-halves[1], halves[0]}, -1) * sin.unsqueeze(-2);
}

#ifdef MUSTER_CUDA_KERNELS

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using kernels::number_of;
using kernels::stream_of;

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool inverse) {
  const at::Tensor in = x.contiguous(), out = at::empty_like(in);
  const std::int64_t positions = x.size(1), heads = x.size(2), size = x.size(3);
  kernels::rotate(number_of(in), in.const_data_ptr(), cos.const_data_ptr(), sin.const_data_ptr(),
                  out.mutable_data_ptr(), x.size(0) * positions * heads, heads, positions, size / 2, inverse,
                  stream_of(in));
  C10_CUDA_CHECK(cudaGetLastError());
  return out;
}

struct Rotation : torch::autograd::Function<Rotation> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin) {
    context->save_for_backward({cos, sin});
    return rotate(x, cos, sin, /*inverse=*/false);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    if (at::GradMode::is_enabled()) return {rotate_plainly(gradients[0], saved[0], -saved[1]), {}, {}};
    return {rotate(gradients[0], saved[0], saved[1], /*inverse=*/true), {}, {}};
  }
};

struct Swiglu : torch::autograd::Function<Swiglu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate, const at::Tensor& up) {
    context->save_for_backward({gate, up});
    const at::Tensor g = gate.contiguous(), u = up.contiguous(), out = at::empty_like(g);
    kernels::swiglu(number_of(g), g.const_data_ptr(), u.const_data_ptr(), out.mutable_data_ptr(), g.numel(),
                    stream_of(g));
    C10_CUDA_CHECK(cudaGetLastError());
    return out;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    if (at::GradMode::is_enabled()) {
      const at::Tensor sigmoid = at::sigmoid(saved[0]), of_product = gradients[0] * sigmoid;
      return {of_product * saved[1] * (1 + saved[0] * (1 - sigmoid)), of_product * saved[0]};
    }
    const at::Tensor d = gradients[0].contiguous(), g = saved[0].contiguous(), u = saved[1].contiguous();
    const at::Tensor of_gate = at::empty_like(g), of_up = at::empty_like(g);
    kernels::swiglu_backward(number_of(g), d.const_data_ptr(), g.const_data_ptr(), u.const_data_ptr(),
                             of_gate.mutable_data_ptr(), of_up.mutable_data_ptr(), g.numel(), stream_of(g));
    C10_CUDA_CHECK(cudaGetLastError());
    return {of_gate, of_up};
  }
};

#endif

}  // namespace

bool has_kernels([[maybe_unused]] at::Device device, [[maybe_unused]] at::ScalarType dtype) {
#ifdef MUSTER_CUDA_KERNELS
  return device.is_cuda() && (dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16);
#else
  return false;
#endif
}

at::Tensor apply_rope(const at::Tensor& x, const RopeTable& table) {
  const at::IntArrayRef of_table = table.cos.sizes();
  const bool fits = x.dim() == 4 && (of_table.size() == 2 || (of_table.size() == 3 && of_table[0] == x.size(0))) &&
                    table.cos.size(-2) == x.size(1) && table.cos.size(-1) <= x.size(3);
  TORCH_CHECK(
      fits && x.scalar_type() == table.cos.scalar_type(), "apply_rope: x is ", x.sizes(), " of ", x.scalar_type(),
      " and the table ", of_table, " of ", table.cos.scalar_type(),
      "; want [batch, positions, heads, head_dim] and [positions, dim] or [batch, positions, dim] of one dtype, "
      "with dim <= head_dim");
  const std::int64_t dim = table.cos.size(-1);
  if (dim < x.size(3)) {
    return at::cat({apply_rope(x.narrow(-1, 0, dim), table), x.narrow(-1, dim, x.size(3) - dim)}, -1);
  }
#ifdef MUSTER_CUDA_KERNELS
  if (of_table.size() == 2 && has_kernels(x.device(), x.scalar_type())) {
    return Rotation::apply(x, table.cos, table.sin);
  }
#endif
  return rotate_plainly(x, table.cos, table.sin);
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  TORCH_CHECK(gate.sizes() == up.sizes() && gate.scalar_type() == up.scalar_type(), "swiglu: gate is ", gate.sizes(),
              " of ", gate.scalar_type(), " and up ", up.sizes(), " of ", up.scalar_type(), "; want equal ones");
#ifdef MUSTER_CUDA_KERNELS
  if (has_kernels(gate.device(), gate.scalar_type())) return Swiglu::apply(gate, up);
#endif
  return at::silu(gate) * up;
}

}  // namespace worker
