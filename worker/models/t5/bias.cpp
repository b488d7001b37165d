#include "worker/models/t5/bias.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/util/BFloat16.h>

#include <cmath>
#include <limits>

#include "worker/models/layers/uninitialised.h"
#include "worker/models/ops.h"

namespace worker {
namespace {

double t5_lowest(at::ScalarType dtype) {
  if (dtype == at::kHalf) return std::numeric_limits<c10::Half>::lowest();
  if (dtype == at::kBFloat16) return std::numeric_limits<c10::BFloat16>::lowest();
  return std::numeric_limits<float>::lowest();
}

}  // namespace

at::Tensor t5_buckets(const at::Tensor& relative, bool bidirectional, std::int64_t buckets, std::int64_t max_distance) {
  if (bidirectional) buckets /= 2;
  const std::int64_t exact = buckets / 2;
  const at::Tensor distance = bidirectional ? relative.abs() : relative.clamp_max(0).neg();
  // In fp32 and in this order, as Hugging Face does it, because the result is cut to whole numbers.
  const at::Tensor far = (distance.clamp_min(1).to(at::kFloat) / static_cast<double>(exact)).log() /
                         std::log(static_cast<double>(max_distance) / static_cast<double>(exact)) * (buckets - exact);
  const at::Tensor of_far = (far.to(at::kLong) + exact).clamp_max(buckets - 1);
  const at::Tensor out = at::where(distance < exact, distance, of_far);
  return bidirectional ? out + (relative > 0).to(at::kLong) * buckets : out;
}

T5RelativeBias::T5RelativeBias(const spec::T5& config, bool bidirectional)
    : weight(register_parameter("weight", uninitialised({config.relative_attention_num_buckets, config.num_heads}))),
      bidirectional_(bidirectional),
      max_distance_(config.relative_attention_max_distance) {}

at::Tensor T5RelativeBias::forward(std::int64_t begin, std::int64_t queries, std::int64_t keys) const {
  // The rows of the result are one row of queries + keys distances, each a place further to the left. So the table is
  // asked once for each distance and not once for each pair. A copy of that row for each query, read in steps of one
  // element less than it has, is the result, and autograd adds up its diagonals.
  const std::int64_t width = queries + keys, heads = weight.size(1), first = 1 - queries - begin;
  const at::Tensor distances = at::arange(first, first + width, at::TensorOptions(at::kLong).device(weight.device()));
  const at::Tensor of_distance =
      worker::embedding(weight, t5_buckets(distances, bidirectional_, weight.size(0), max_distance_)).t();
  const at::Tensor copies = of_distance.unsqueeze(1).expand({heads, queries, width}).reshape({heads, queries * width});
  return copies.narrow(1, queries - 1, queries * (width - 1)).view({1, heads, queries, width - 1}).narrow(3, 0, keys);
}

at::Tensor t5_penalty(const at::Tensor& sees, at::ScalarType dtype) {
  return at::zeros(sees.sizes(), sees.options().dtype(dtype)).masked_fill_(sees.logical_not(), t5_lowest(dtype));
}

}  // namespace worker
