#include "worker/models/layers/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <numbers>

#include "worker/models/layers/layers.h"

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

Mask segment_mask(const at::Tensor& segment_ids) {
  TORCH_CHECK(segment_ids.dim() == 2, "segment_mask: segment ids are ", segment_ids.sizes(),
              "; want [rows, positions]");
  const at::Tensor same = segment_ids.unsqueeze(2) == segment_ids.unsqueeze(1);
  return {.bias = same.tril().unsqueeze(1), .causal = false};
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
  TORCH_CHECK(!(mask.causal && mask.bias.defined()), "attention: the mask is causal and has a bias; want one of them");
  if (mask.bias.defined() && mask.bias.requires_grad()) {
    return attention_by_products(q, k, v, mask.bias, scale.value_or(1 / std::sqrt(static_cast<double>(q.size(-1)))),
                                 dropout, training);
  }
  const auto bias = mask.bias.defined() ? std::optional<at::Tensor>(mask.bias) : std::nullopt;
  return at::scaled_dot_product_attention(q, k, v, bias, training ? dropout : 0.0, mask.causal, scale,
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
