// Goal: documents in one row do not see each other, and no mask is made for that. Method: beside a dense mask, and by
// counting the bytes of tensors.
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "fsdp/memory/storage.h"
#include "tests/worker/packed_rows.h"
#include "worker/models/layers/attention.h"

namespace worker::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Le;

/// Queries of 6 heads on 2 key/value heads of size 8, in the layout that layers give.
struct Heads {
  Heads(std::int64_t rows, std::int64_t positions) {
    at::manual_seed(3);
    for (const std::int64_t heads : {6, 2, 2})
      leaves.push_back(at::randn({rows, positions, heads * 8}).requires_grad_());
  }
  at::Tensor attend(const Mask& mask, std::optional<double> scale = {}, double dropout = 0) const {
    return attention(split_heads(leaves[0], 6), split_heads(leaves[1], 2), split_heads(leaves[2], 2), mask, scale,
                     dropout, /*training=*/true);
  }

  std::vector<at::Tensor> leaves;  // of q, k, v
};

TEST(DocumentAttention, EqualsADenseMaskWithItsGradients) {
  const auto documents = packed_rows({{5, 1, 9}, {24}, {2, 2}}, 24);
  for (const std::optional<double> scale : {std::optional<double>(), std::optional(0.7)}) {
    const Heads packed(3, 24), dense(3, 24);
    const at::Tensor got = packed.attend({.documents = documents}, scale);
    const at::Tensor want = dense.attend({.bias = dense_mask(*documents, 24)}, scale);
    EXPECT_EQ(got.sizes(), want.sizes());
    EXPECT_TRUE(at::allclose(got, want, 1e-5, 1e-6));
    const at::Tensor of_out = at::randn(want.sizes());
    got.backward(of_out);
    want.backward(of_out);
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_TRUE(at::allclose(packed.leaves[i].grad(), dense.leaves[i].grad(), 1e-5, 1e-6)) << "of q, k, v: " << i;
  }
}

TEST(DocumentAttention, PaddingIsFiniteAndSeenByNobody) {
  const auto documents = packed_rows({{5}}, 8);
  const Heads one(1, 8), other(1, 8);
  {
    const at::NoGradGuard no_grad;
    for (const auto& x : other.leaves) x.narrow(1, 5, 3).fill_(1e3);
  }
  const at::Tensor got = one.attend({.documents = documents}), with_other = other.attend({.documents = documents});
  EXPECT_TRUE(got.isfinite().all().item<bool>());
  EXPECT_TRUE(at::equal(got.narrow(2, 0, 5), with_other.narrow(2, 0, 5)));
}

TEST(DocumentAttention, DropoutDropsAndKeepsDocumentsApart) {
  const auto documents = packed_rows({{1, 1, 1, 1}}, 4);
  const at::Tensor got = Heads(1, 4).attend({.documents = documents}, {}, 0.5);
  const at::Tensor v = split_heads(Heads(1, 4).leaves[2], 2).repeat_interleave(3, 1);
  const at::Tensor share = got / v;  // of a token that sees itself alone: 0 or 1 / (1 - 0.5)
  EXPECT_TRUE((((share - 2).abs() < 1e-5) | (share == 0)).all().item<bool>()) << share;
  EXPECT_TRUE((share == 0).any().item<bool>());
}

TEST(DocumentAttention, MemoryGrowsWithTheLengthOfARowAndNotWithItsSquare) {
  const auto peak_at = [](std::int64_t positions) {
    const std::int64_t half = positions / 2;
    const auto documents = packed_rows({{half, 100, 1000}}, positions);
    const Heads heads(1, positions);
    const fsdp::CountTensorBytes count;
    heads.attend({.documents = documents}).sum().backward();
    return fsdp::TensorBytes::current()->peak();
  };
  const std::int64_t shorter = peak_at(16'384), longer = peak_at(32'768);
  EXPECT_THAT(static_cast<double>(longer), Le(2.1 * static_cast<double>(shorter)));
  // q, k, v, the result and their gradients are 10 heads' worth of 8 floats each, and copies of them come on top.
  EXPECT_THAT(longer, Le(32'768 * 32'768 / 8)) << "a mask of bits would be as large";
}

TEST(DocumentAttention, RefusesDocumentsOfOtherRowsAndASecondMask) {
  const auto documents = packed_rows({{5}}, 8);
  const auto message = [&](const Heads& heads, const Mask& mask) -> std::string {
    try {
      heads.attend(mask);
    } catch (const c10::Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message(Heads(2, 8), {.documents = documents}), HasSubstr("documents of 8 tokens for 2 rows of 8"));
  EXPECT_THAT(message(Heads(1, 8), {.causal = true, .documents = documents}), HasSubstr("want one of them"));
}

}  // namespace
}  // namespace worker::testing
