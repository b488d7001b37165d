#include "worker/models/layers/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <tuple>

#include "worker/models/layers/layers.h"
#include "worker/models/ops.h"

namespace worker {
namespace {

/// The angle of each pair at position 1, fp32 [dim / 2].
at::Tensor frequencies(const RopeOptions& rope, at::Device device) {
  TORCH_CHECK(rope.dim > 0 && rope.dim % 2 == 0, "rope_table: dim is ", rope.dim, "; want an even number above 0");
  const auto options = at::TensorOptions(at::kFloat).device(device);
  const at::Tensor exponent = at::arange(0, rope.dim, 2, options) / static_cast<double>(rope.dim);
  const at::Tensor plain = 1.0 / at::pow(rope.theta, exponent);
  if (rope.type == spec::RopeScaling::kDefault) return plain;
  if (rope.type == spec::RopeScaling::kLinear) return plain / rope.factor;
  TORCH_CHECK(rope.original_positions > 0 && rope.high_freq_factor > rope.low_freq_factor,
              "rope_table: llama3 with original_positions = ", rope.original_positions,
              ", low_freq_factor = ", rope.low_freq_factor, " and high_freq_factor = ", rope.high_freq_factor,
              "; want positions above 0 and the high factor above the low one");
  // 0 for long wavelengths, 1 for short ones.
  const at::Tensor turns = plain * (static_cast<double>(rope.original_positions) / (2 * std::numbers::pi));
  const at::Tensor kept = ((turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)).clamp(0, 1);
  return (1 - kept) * plain / rope.factor + kept * plain;
}

RopeTable table_of(const at::Tensor& positions, const at::Tensor& frequency, at::ScalarType dtype) {
  const at::Tensor half = positions.unsqueeze(-1) * frequency;
  const at::Tensor angle = at::cat({half, half}, -1);
  return {angle.cos().to(dtype), angle.sin().to(dtype)};
}

at::Tensor attention_by_products(const at::Tensor& q, at::Tensor k, at::Tensor v, const at::Tensor& bias, double scale,
                                 double p, bool training) {
  if (const std::int64_t groups = q.size(1) / k.size(1); groups != 1) {
    k = k.repeat_interleave(groups, 1);
    v = v.repeat_interleave(groups, 1);
  }
  at::Tensor scores = q.matmul(k.transpose(-2, -1));
  if (scale != 1) scores = scores * scale;
  const at::Tensor shares = at::softmax(scores + bias, -1, at::kFloat).to(q.scalar_type());
  return drop_out(shares, p, training).matmul(v);
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// softmax(q k^T * scale + mask) v of whole rows, by LibTorch's kernel for q's device. The mask is causal or none.
struct FlashAttention : torch::autograd::Function<FlashAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            bool causal, std::optional<double> scale) {
    const variable_list made = checkpointed(kAttention, [&]() -> variable_list {
      if (q.is_cpu()) {
        auto [out, sums] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, {}, scale);
        return {std::move(out), std::move(sums)};
      }
      const auto all = at::_scaled_dot_product_flash_attention(q, k, v, 0.0, causal, false, scale);
      return {std::get<0>(all), std::get<1>(all), std::get<6>(all), std::get<7>(all)};
    });
    variable_list saved{q, k, v};
    saved.insert(saved.end(), made.begin(), made.end());
    context->save_for_backward(std::move(saved));
    context->saved_data["causal"] = causal;
    context->saved_data["scale"] = scale;
    return made[0];
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &out = saved[3], &sums = saved[4];
    const bool causal = context->saved_data["causal"].toBool();
    const auto scale = context->saved_data["scale"].toOptional<double>();
    const auto of = q.is_cpu() ? at::_scaled_dot_product_flash_attention_for_cpu_backward(gradients[0], q, k, v, out,
                                                                                          sums, 0.0, causal, {}, scale)
                               : at::_scaled_dot_product_flash_attention_backward(
                                     gradients[0], q, k, v, out, sums, /*cum_seq_q=*/{}, /*cum_seq_k=*/{}, q.size(2),
                                     k.size(2), 0.0, causal, saved[5], saved[6], scale);
    return {std::get<0>(of), std::get<1>(of), std::get<2>(of), {}, {}};
  }
};

/// That of documents in flattened rows, on GPUs; see takes_lists_of_lengths().
struct FlashAttentionOfDocuments : torch::autograd::Function<FlashAttentionOfDocuments> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& starts, std::int64_t longest, std::optional<double> scale) {
    const variable_list made = checkpointed(kAttention, [&]() -> variable_list {
      const auto all = at::_flash_attention_forward(q, k, v, starts, starts, longest, longest, 0.0, /*is_causal=*/true,
                                                    /*return_debug_mask=*/false, scale);
      return {std::get<0>(all), std::get<1>(all), std::get<2>(all), std::get<3>(all)};
    });
    variable_list saved{q, k, v, starts};
    saved.insert(saved.end(), made.begin(), made.end());
    context->save_for_backward(std::move(saved));
    context->saved_data["longest"] = longest;
    context->saved_data["scale"] = scale;
    return made[0];
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const std::int64_t longest = context->saved_data["longest"].toInt();
    const auto of = at::_flash_attention_backward(
        gradients[0], saved[0], saved[1], saved[2], saved[4], saved[5], saved[3], saved[3], longest, longest, 0.0,
        /*is_causal=*/true, saved[6], saved[7], context->saved_data["scale"].toOptional<double>());
    return {std::get<0>(of), std::get<1>(of), std::get<2>(of), {}, {}, {}};
  }
};

/// The kernel that scaled_dot_product_attention() would choose for whole rows without dropout, and without a mask or
/// with the causal one.
sdp::SDPBackend kernel_for(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
  return static_cast<sdp::SDPBackend>(
      at::_fused_sdp_choice(q, k, v, /*attn_mask=*/{}, 0.0, causal, {}, /*enable_gqa=*/k.size(1) != q.size(1)));
}

/// Attention without a mask, or with the causal one. Where an activation checkpoint keeps its results, the kernel is
/// called by a function of our own, which takes them again.
at::Tensor plain_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                           std::optional<double> scale, double dropout) {
  if (dropout == 0 && checkpoint_keeps(kAttention) && (q.is_cpu() || q.size(-1) % 8 == 0) &&
      kernel_for(q, k, v, causal) == sdp::SDPBackend::flash_attention)
    return FlashAttention::apply(q, k, v, causal, scale);
  return at::scaled_dot_product_attention(q, k, v, {}, dropout, causal, scale, /*enable_gqa=*/k.size(1) != q.size(1));
}

/// True if LibTorch's kernel for lists of lengths takes them. It exists on GPUs, and its conditions are those of the
/// kernel that scaled_dot_product_attention() would choose for whole rows, but for the size of a head, which that
/// function pads.
bool takes_lists_of_lengths(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double dropout) {
  if (!q.is_cuda() || dropout > 0 || q.size(-1) % 8 != 0) return false;
  const sdp::SDPBackend chosen = kernel_for(q, k, v, /*causal=*/true);
  return chosen == sdp::SDPBackend::flash_attention || chosen == sdp::SDPBackend::cudnn_attention;
}

/// [batch, heads, positions, d] -> [batch * positions, heads, d]. A view where joined rows are in memory.
at::Tensor flat_rows(const at::Tensor& x) {
  return x.transpose(1, 2).reshape({x.size(0) * x.size(2), x.size(1), x.size(3)});
}

at::Tensor document_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Documents& documents,
                              std::optional<double> scale, double dropout) {
  TORCH_CHECK(q.size(2) == k.size(2), "attention: ", q.size(2), " queries and ", k.size(2),
              " keys of rows with documents; want equal numbers");
  const auto tokens = std::accumulate(documents.lengths.begin(), documents.lengths.end(), std::int64_t{0});
  TORCH_CHECK(tokens == q.size(0) * q.size(2), "attention: documents of ", tokens, " tokens for ", q.size(0),
              " rows of ", q.size(2), "; want as many");
  const at::Tensor flat_q = flat_rows(q), flat_k = flat_rows(k), flat_v = flat_rows(v);
  at::Tensor out;
  if (takes_lists_of_lengths(q, k, v, dropout)) {
    const auto longest = *std::max_element(documents.lengths.begin(), documents.lengths.end());
    out = FlashAttentionOfDocuments::apply(flat_q, flat_k, flat_v, documents.starts, longest, scale);
  } else {
    const auto qs = flat_q.split_with_sizes(documents.lengths), ks = flat_k.split_with_sizes(documents.lengths),
               vs = flat_v.split_with_sizes(documents.lengths);
    const auto of_one = [](const at::Tensor& x) { return x.transpose(0, 1).unsqueeze(0); };
    std::vector<at::Tensor> outs;
    outs.reserve(qs.size());
    for (std::size_t i = 0; i < qs.size(); ++i) {
      const at::Tensor of_document =
          plain_attention(of_one(qs[i]), of_one(ks[i]), of_one(vs[i]), /*causal=*/true, scale, dropout);
      outs.push_back(of_document.squeeze(0).transpose(0, 1));
    }
    out = at::cat(outs);
  }
  return out.view({q.size(0), q.size(2), q.size(1), v.size(3)}).transpose(1, 2);
}

}  // namespace

Mask causal_mask() {
  return {.bias = {}, .causal = true};
}

at::Tensor earlier_keys(std::int64_t before, std::int64_t queries, at::Device device) {
  const at::Tensor keys = at::arange(before + queries, at::TensorOptions(at::kLong).device(device));
  return keys.unsqueeze(0) <= keys.narrow(0, before, queries).unsqueeze(1);
}

Mask continued_mask(std::int64_t before, std::int64_t queries, at::Device device) {
  if (before == 0 && queries > 1) return causal_mask();
  if (queries == 1) return {};
  return {.bias = earlier_keys(before, queries, device), .causal = false};
}

Mask padding_mask(const at::Tensor& attention_mask) {
  TORCH_CHECK(attention_mask.dim() == 2, "padding_mask: the mask is ", attention_mask.sizes(), "; want [batch, keys]");
  const at::Tensor counts = attention_mask > 0;
  const at::Tensor empty = counts.any(-1, /*keepdim=*/true).logical_not();
  return {.bias = counts.logical_or(empty).unsqueeze(1).unsqueeze(1), .causal = false};
}

RopeTable rope_table(std::int64_t begin, std::int64_t count, const RopeOptions& options, at::ScalarType dtype,
                     at::Device device) {
  const at::Tensor frequency = frequencies(options, device);
  return table_of(at::arange(begin, begin + count, at::TensorOptions(at::kFloat).device(device)), frequency, dtype);
}

RopeTable rope_table(const at::Tensor& positions, const RopeOptions& options, at::ScalarType dtype) {
  return table_of(positions.to(at::kFloat), frequencies(options, positions.device()), dtype);
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask,
                     std::optional<double> scale, double dropout, bool training) {
  TORCH_CHECK(mask.causal + mask.bias.defined() + (mask.documents != nullptr) <= 1,
              "attention: the mask has more than one of causal, bias and documents; want one of them");
  if (mask.documents) return document_attention(q, k, v, *mask.documents, scale, training ? dropout : 0.0);
  if (mask.bias.defined() && mask.bias.requires_grad()) {
    return attention_by_products(q, k, v, mask.bias, scale.value_or(1 / std::sqrt(static_cast<double>(q.size(-1)))),
                                 dropout, training);
  }
  const double p = training ? dropout : 0.0;
  if (!mask.bias.defined()) return plain_attention(q, k, v, mask.causal, scale, p);
  return at::scaled_dot_product_attention(q, k, v, mask.bias, p, /*is_causal=*/false, scale,
                                          /*enable_gqa=*/k.size(1) != q.size(1));
}

at::Tensor split_heads(const at::Tensor& x, std::int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

at::Tensor joined_heads(const at::Tensor& x) {
  return x.transpose(1, 2).reshape({x.size(0), x.size(2), x.size(1) * x.size(3)});
}

void KeyValues::append(const at::Tensor& more_keys, const at::Tensor& more_values) {
  const std::int64_t count = more_keys.size(2);
  TORCH_CHECK(length + count <= keys.size(2), "append: the cache holds ", length, " of ", keys.size(2),
              " positions, and ", count, " more do not fit; make the cache with a larger capacity");
  keys.narrow(2, length, count).copy_(more_keys);
  values.narrow(2, length, count).copy_(more_values);
  length += count;
}

void use_cache(KeyValues* cached, at::Tensor& keys, at::Tensor& values) {
  if (cached == nullptr) return;
  cached->append(keys, values);
  keys = cached->all_keys();
  values = cached->all_values();
}

Cache empty_cache(std::int64_t layers, at::IntArrayRef shape, const at::TensorOptions& options) {
  Cache cache(static_cast<std::size_t>(layers));
  for (auto& layer : cache) layer = {at::empty(shape, options), at::empty(shape, options), 0};
  return cache;
}

}  // namespace worker
