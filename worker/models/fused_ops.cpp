#include "worker/models/fused_ops.h"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/sum.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <functional>

#include "worker/models/kernels/cpu_kernels.h"
#ifdef MUSTER_CUDA_KERNELS
#include "worker/models/kernels/kernel_launch.h"
#endif

namespace worker {
namespace {

using kernels::Number;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool has_norm_kernels(const at::Tensor& x, const at::Tensor& weight) {
  return x.is_cpu() && has_kernels(x.device(), x.scalar_type()) && has_kernels(x.device(), weight.scalar_type()) &&
         weight.dim() == 1 && x.dim() > 0 && x.size(-1) == weight.size(0);
}

Number cpu_number(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 ? Number::kBFloat16 : Number::kFloat;
}

/// Calls `compute` for parts [begin, end) of `rows` rows on the threads of LibTorch.
void for_rows(std::int64_t rows, std::int64_t columns, const std::function<void(std::int64_t, std::int64_t)>& compute) {
  if (rows == 0 || columns == 0 || computes_nothing()) return;
  const std::int64_t grain = std::max<std::int64_t>(1, at::internal::GRAIN_SIZE / columns);
  at::parallel_for(0, rows, grain, compute);
}

/// The address of a row in memory that is only read, or written by the caller's own kernel.
void* row_at(const at::Tensor& tensor, std::int64_t elements) {
  const auto offset = elements * static_cast<std::int64_t>(tensor.element_size());
  return static_cast<char*>(const_cast<void*>(tensor.const_data_ptr())) + offset;
}

at::Tensor rotate_plainly(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const auto halves = x.chunk(2, -1);
  return x * cos.unsqueeze(-2) + at::cat({-halves[1], halves[0]}, -1) * sin.unsqueeze(-2);
}

kernels::Rows rows_of(const at::Tensor& x) {
  return {const_cast<void*>(x.const_data_ptr()), x.stride(0), x.stride(1), x.stride(2)};
}

/// Rotates heads into `out`. Both are [batch, positions, heads, dim].
void rotate_into(const at::Tensor& out, const at::Tensor& given, const at::Tensor& cos, const at::Tensor& sin,
                 bool inverse) {
  const at::Tensor x = given.stride(-1) == 1 ? given : given.contiguous();
  if (x.numel() == 0) return;
  const kernels::RotationSizes sizes{x.size(0), x.size(1), x.size(2), x.size(3) / 2, cos.numel() / cos.size(-1),
                                     inverse};
  const kernels::Rows from = rows_of(x), to = rows_of(out);
#ifdef MUSTER_CUDA_KERNELS
  if (x.is_cuda()) {
    kernels::rotate(kernels::number_of(x), from, cos.const_data_ptr(), sin.const_data_ptr(), to, sizes,
                    kernels::stream_of(x));
    C10_CUDA_CHECK(cudaGetLastError());
    return;
  }
#endif
  for_rows(x.size(0) * x.size(1), x.size(2) * x.size(3), [&](std::int64_t begin, std::int64_t end) {
    kernels::cpu::rotate(cpu_number(x), from, cos.const_data_ptr(), sin.const_data_ptr(), to, sizes, begin, end);
  });
}

at::Tensor rotated(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool inverse) {
  const at::Tensor out = at::empty(x.sizes(), x.options());
  rotate_into(out, x, cos, sin, inverse);
  return out;
}

struct Rotation : torch::autograd::Function<Rotation> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin) {
    context->save_for_backward({cos, sin});
    return rotated(x, cos, sin, /*inverse=*/false);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    if (at::GradMode::is_enabled()) return {rotate_plainly(gradients[0], saved[0], -saved[1]), {}, {}};
    return {rotated(gradients[0], saved[0], saved[1], /*inverse=*/true), {}, {}};
  }
};

/// Queries, keys and values as views of their common rows.
SplitHeads parts_of(const at::Tensor& qkv, std::int64_t heads, std::int64_t kv_heads) {
  const at::Tensor all = qkv.view({qkv.size(0), qkv.size(1), heads + 2 * kv_heads, -1});
  return {all.narrow(2, 0, heads), all.narrow(2, heads, kv_heads), all.narrow(2, heads + kv_heads, kv_heads)};
}

struct SplitRotation : torch::autograd::Function<SplitRotation> {
  static variable_list forward(AutogradContext* context, const at::Tensor& qkv, const at::Tensor& cos,
                               const at::Tensor& sin, std::int64_t heads, std::int64_t kv_heads) {
    context->save_for_backward({cos, sin});
    const SplitHeads parts = parts_of(qkv.contiguous(), heads, kv_heads);
    return {rotated(parts.q, cos, sin, false), rotated(parts.k, cos, sin, false),
            parts.v.clone(at::MemoryFormat::Contiguous)};
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &q = gradients[0], &k = gradients[1], &v = gradients[2];
    if (at::GradMode::is_enabled()) {
      const at::Tensor back = -saved[1];
      return {at::cat({rotate_plainly(q, saved[0], back), rotate_plainly(k, saved[0], back), v}, 2).flatten(2),
              {},
              {},
              {},
              {}};
    }
    const std::int64_t heads = q.size(2), kv_heads = k.size(2);
    const at::Tensor out = at::empty({q.size(0), q.size(1), (heads + 2 * kv_heads) * q.size(3)}, q.options());
    const SplitHeads parts = parts_of(out, heads, kv_heads);
    rotate_into(parts.q, q, saved[0], saved[1], true);
    rotate_into(parts.k, k, saved[0], saved[1], true);
    parts.v.copy_(v);
    return {out, {}, {}, {}, {}};
  }
};

/// Rows of gate and of up as kernels take them.
struct Gated {
  at::Tensor gate, up;  // [.., columns], with `stride` elements from row to row
  std::int64_t rows, columns, stride;
};

Gated gated(const at::Tensor& gate, const at::Tensor& up) {
  const at::Tensor g = gate.contiguous(), u = up.contiguous();
  return {g, u, 1, g.numel(), g.numel()};
}

Gated gated(const at::Tensor& both) {
  const std::int64_t columns = both.size(-1) / 2;
  return {both.narrow(-1, 0, columns), both.narrow(-1, columns, columns),
          columns == 0 ? 0 : both.numel() / (2 * columns), columns, 2 * columns};
}

/// Calls `compute` with the first element of gate and up, that of the result, rows and columns, for parts of the rows.
/// The elements of one dense row are as good as rows.
template <class Compute>
void for_parts(const Gated& in, const Compute& compute) {
  if (in.rows == 1) {
    return for_rows(in.columns, 1,
                    [&](std::int64_t begin, std::int64_t end) { compute(begin, begin, std::int64_t{1}, end - begin); });
  }
  for_rows(in.rows, in.columns, [&](std::int64_t begin, std::int64_t end) {
    compute(begin * in.stride, begin * in.columns, end - begin, in.columns);
  });
}

void swiglu_into(const at::Tensor& out, const Gated& in) {
#ifdef MUSTER_CUDA_KERNELS
  if (out.is_cuda()) {
    kernels::swiglu(kernels::number_of(out), in.gate.const_data_ptr(), in.up.const_data_ptr(), out.mutable_data_ptr(),
                    in.rows, in.columns, in.stride, kernels::stream_of(out));
    C10_CUDA_CHECK(cudaGetLastError());
    return;
  }
#endif
  for_parts(in, [&](std::int64_t first, std::int64_t of_out, std::int64_t rows, std::int64_t columns) {
    kernels::cpu::swiglu(cpu_number(out), row_at(in.gate, first), row_at(in.up, first), row_at(out, of_out), rows,
                         columns, in.stride);
  });
}

void swiglu_backward_into(const Gated& out, const at::Tensor& of_out, const Gated& in) {
#ifdef MUSTER_CUDA_KERNELS
  if (of_out.is_cuda()) {
    kernels::swiglu_backward(kernels::number_of(of_out), of_out.const_data_ptr(), in.gate.const_data_ptr(),
                             in.up.const_data_ptr(), out.gate.mutable_data_ptr(), out.up.mutable_data_ptr(), in.rows,
                             in.columns, in.stride, kernels::stream_of(of_out));
    C10_CUDA_CHECK(cudaGetLastError());
    return;
  }
#endif
  for_parts(in, [&](std::int64_t first, std::int64_t of_row, std::int64_t rows, std::int64_t columns) {
    kernels::cpu::swiglu_backward(cpu_number(of_out), row_at(of_out, of_row), row_at(in.gate, first),
                                  row_at(in.up, first), row_at(out.gate, first), row_at(out.up, first), rows, columns,
                                  in.stride);
  });
}

/// The gradients of silu(gate) * up by LibTorch's operations.
std::pair<at::Tensor, at::Tensor> swiglu_gradients(const at::Tensor& of_out, const at::Tensor& gate,
                                                   const at::Tensor& up) {
  const at::Tensor sigmoid = at::sigmoid(gate), of_product = of_out * sigmoid;
  return {of_product * up * (1 + gate * (1 - sigmoid)), of_product * gate};
}

struct Swiglu : torch::autograd::Function<Swiglu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate, const at::Tensor& up) {
    context->save_for_backward({gate, up});
    const at::Tensor out = at::empty(gate.sizes(), gate.options());
    swiglu_into(out, gated(gate, up));
    return out;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    if (at::GradMode::is_enabled()) {
      const auto [of_gate, of_up] = swiglu_gradients(gradients[0], saved[0], saved[1]);
      return {of_gate, of_up};
    }
    const Gated in = gated(saved[0], saved[1]);
    Gated out = in;
    out.gate = at::empty_like(in.gate);
    out.up = at::empty_like(in.up);
    swiglu_backward_into(out, gradients[0].contiguous(), in);
    return {out.gate, out.up};
  }
};

struct SwigluOfBoth : torch::autograd::Function<SwigluOfBoth> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& given) {
    const at::Tensor both = given.contiguous();
    context->save_for_backward({both});
    std::vector<std::int64_t> sizes = both.sizes().vec();
    sizes.back() /= 2;
    const at::Tensor out = at::empty(sizes, both.options());
    swiglu_into(out, gated(both));
    return out;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor both = context->get_saved_variables()[0];
    if (at::GradMode::is_enabled()) {
      const auto halves = both.chunk(2, -1);
      const auto [of_gate, of_up] = swiglu_gradients(gradients[0], halves[0], halves[1]);
      return {at::cat({of_gate, of_up}, -1)};
    }
    const at::Tensor out = at::empty_like(both);
    swiglu_backward_into(gated(out), gradients[0].contiguous(), gated(both));
    return {out};
  }
};

/// Gradients by weights are summed over as many rows at once. So the sums do not depend on the number of threads.
constexpr std::int64_t kRowsOfSum = 64;

/// The kernel's norm over rows, with or without a residual that is added before.
struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  /// Returns the norm; with `stream` also the input of the norm before it, which is x itself without a residual.
  static variable_list forward(AutogradContext* context, const at::Tensor& given, const at::Tensor& weight,
                               const std::optional<at::Tensor>& given_residual, double eps, bool stream) {
    const at::Tensor x = given.contiguous();
    const bool adds = given_residual.has_value();
    const at::Tensor residual = adds ? given_residual->contiguous() : at::Tensor();
    const at::Tensor sum = adds ? at::empty_like(x) : x, out = at::empty_like(x), wide = weight.to(at::kFloat);
    const std::int64_t columns = x.size(-1), rows = columns == 0 ? 0 : x.numel() / columns;
    const at::Tensor inverse = at::empty({rows}, x.options().dtype(at::kFloat));
    for_rows(rows, columns, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t first = begin * columns;
      kernels::cpu::NormForward norm;
      norm.x = row_at(x, first);
      if (adds) norm.residual = row_at(residual, first);
      if (adds) norm.sum = row_at(sum, first);
      norm.weight = wide.const_data_ptr<float>();
      norm.out = row_at(out, first);
      norm.inverse = inverse.mutable_data_ptr<float>() + begin;
      norm.rows = end - begin;
      norm.columns = columns;
      norm.eps = eps;
      kernels::cpu::rms_norm(cpu_number(x), norm);
    });
    context->set_materialize_grads(false);
    context->save_for_backward({sum, weight, inverse});
    context->saved_data["eps"] = eps;
    context->saved_data["adds"] = adds;
    if (!stream) return {out};
    return {adds ? sum : given, out};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &inverse = saved[2], &of_out = gradients.back();
    const at::Tensor of_sum = gradients.size() > 1 ? gradients[0] : at::Tensor();
    const bool adds = context->saved_data["adds"].toBool();
    const auto all = [&](const at::Tensor& of_x, const at::Tensor& of_weight) -> variable_list {
      return {of_x, of_weight, adds ? of_x : at::Tensor(), {}, {}};
    };
    if (!of_out.defined()) return all(of_sum, {});
    const bool wants_x = context->needs_input_grad(0) || (adds && context->needs_input_grad(2));
    const bool wants_weight = context->needs_input_grad(1);
    if (at::GradMode::is_enabled()) {
      const auto [of_x, of_weight] = by_operations(of_out, x, weight, context->saved_data["eps"].toDouble());
      return all(of_sum.defined() ? of_x + of_sum : of_x, of_weight);
    }
    const at::Tensor d = of_out.contiguous(), more = of_sum.defined() ? of_sum.contiguous() : at::Tensor();
    const at::Tensor wide = weight.to(at::kFloat);
    const std::int64_t columns = x.size(-1), rows = inverse.numel(), blocks = (rows + kRowsOfSum - 1) / kRowsOfSum;
    at::Tensor of_x, sums;
    if (wants_x) of_x = at::empty_like(x);
    if (wants_weight) sums = at::empty({blocks, columns}, wide.options());
    for_rows(blocks, columns * kRowsOfSum, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t block = begin; block < end; ++block) {
        const std::int64_t row = block * kRowsOfSum, first = row * columns;
        kernels::cpu::NormBackward norm;
        norm.of_out = row_at(d, first);
        if (more.defined()) norm.of_sum = row_at(more, first);
        norm.x = row_at(x, first);
        norm.weight = wide.const_data_ptr<float>();
        norm.inverse = inverse.const_data_ptr<float>() + row;
        if (wants_x) norm.of_x = row_at(of_x, first);
        if (wants_weight) norm.of_weight = sums.mutable_data_ptr<float>() + block * columns;
        norm.rows = std::min(kRowsOfSum, rows - row);
        norm.columns = columns;
        kernels::cpu::rms_norm_backward(cpu_number(x), norm);
      }
    });
    return all(of_x, wants_weight ? sums.sum(0).to(weight.scalar_type()) : at::Tensor());
  }

  /// The gradients by x and by the weight, of LibTorch's operations.
  static std::pair<at::Tensor, at::Tensor> by_operations(const at::Tensor& of_out, const at::Tensor& given,
                                                         const at::Tensor& weight, double eps) {
    const at::Tensor x = given.to(at::kFloat), d = of_out.to(at::kFloat);
    const at::Tensor inverse = at::rsqrt(x.pow(2).mean(-1, /*keepdim=*/true) + eps), normed = x * inverse;
    const at::Tensor scaled = d * weight.to(at::kFloat);
    const at::Tensor of_x = (scaled - normed * (scaled * normed).mean(-1, /*keepdim=*/true)) * inverse;
    return {of_x.to(given.scalar_type()), (d * normed).reshape({-1, x.size(-1)}).sum(0).to(weight.scalar_type())};
  }
};

}  // namespace

bool computes_nothing() {
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Fake);
}

bool has_kernels(at::Device device, at::ScalarType dtype) {
  if (device.is_cpu()) return dtype == at::kFloat || dtype == at::kBFloat16;
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
  if (has_kernels(x.device(), x.scalar_type()))
    return Rotation::apply(x, table.cos.contiguous(), table.sin.contiguous());
  return rotate_plainly(x, table.cos, table.sin);
}

SplitHeads split_rotated(const at::Tensor& qkv, const RopeTable& table, std::int64_t heads, std::int64_t kv_heads) {
  const std::int64_t dim = table.cos.size(-1);
  TORCH_CHECK(qkv.dim() == 3 && qkv.size(2) == (heads + 2 * kv_heads) * dim, "split_rotated: the rows are ",
              qkv.sizes(), "; want [batch, positions, (", heads, " + 2 * ", kv_heads, ") * ", dim, "]");
  const bool fits = table.cos.size(-2) == qkv.size(1) && (table.cos.dim() == 2 || table.cos.size(0) == qkv.size(0)) &&
                    table.cos.scalar_type() == qkv.scalar_type();
  if (fits && has_kernels(qkv.device(), qkv.scalar_type())) {
    const auto parts = SplitRotation::apply(qkv, table.cos.contiguous(), table.sin.contiguous(), heads, kv_heads);
    return {parts[0], parts[1], parts[2]};
  }
  const SplitHeads parts = parts_of(qkv, heads, kv_heads);
  return {apply_rope(parts.q, table), apply_rope(parts.k, table), parts.v};
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  TORCH_CHECK(gate.sizes() == up.sizes() && gate.scalar_type() == up.scalar_type(), "swiglu: gate is ", gate.sizes(),
              " of ", gate.scalar_type(), " and up ", up.sizes(), " of ", up.scalar_type(), "; want equal ones");
  if (has_kernels(gate.device(), gate.scalar_type())) return Swiglu::apply(gate, up);
  return at::silu(gate) * up;
}

at::Tensor swiglu(const at::Tensor& gate_and_up) {
  TORCH_CHECK(gate_and_up.dim() > 0 && gate_and_up.size(-1) % 2 == 0, "swiglu: gate and up are ", gate_and_up.sizes(),
              "; want rows of an even number of elements");
  if (has_kernels(gate_and_up.device(), gate_and_up.scalar_type())) return SwigluOfBoth::apply(gate_and_up);
  const auto halves = gate_and_up.chunk(2, -1);
  return at::silu(halves[0]) * halves[1];
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  if (has_norm_kernels(x, weight)) return RmsNormFunction::apply(x, weight, std::nullopt, eps, /*stream=*/false)[0];
  return at::rms_norm(x.to(weight.scalar_type()), weight.sizes(), weight, eps).to(x.scalar_type());
}

Normed rms_norm_beside(const at::Tensor& x, const at::Tensor& weight, double eps) {
  if (!has_norm_kernels(x, weight)) return {x, rms_norm(x, weight, eps)};
  const auto both = RmsNormFunction::apply(x, weight, std::nullopt, eps, /*stream=*/true);
  return {both[0], both[1]};
}

Normed rms_norm_of_sum(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight, double eps) {
  if (!has_norm_kernels(x, weight) || x.sizes() != residual.sizes() || x.scalar_type() != residual.scalar_type()) {
    const at::Tensor sum = x + residual;
    return {sum, rms_norm(sum, weight, eps)};
  }
  const auto both = RmsNormFunction::apply(x, weight, residual, eps, /*stream=*/true);
  return {both[0], both[1]};
}

}  // namespace worker
