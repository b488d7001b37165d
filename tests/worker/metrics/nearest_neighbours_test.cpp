// Goal: neighbours vote with exp(cosine / temperature), and errors name what does not fit. Method: features made by
// hand.
#include "worker/metrics/nearest_neighbours.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace worker {
namespace {

at::Tensor label(std::initializer_list<std::int64_t> labels) {
  return at::tensor(labels, at::kLong);
}

TEST(NearestNeighbours, LengthsDoNotCount) {
  const at::Tensor bank = at::tensor({1.0f, 0.0f, 0.0f, 1.0f}).view({2, 2});
  const at::Tensor queries = at::tensor({100.0f, 1.0f, 0.001f, 0.5f}).view({2, 2});
  EXPECT_EQ(knn_accuracy(bank, label({3, 7}), queries, label({3, 7}), 1, 0.07), 1);
  EXPECT_EQ(knn_accuracy(bank, label({3, 7}), queries, label({7, 7}), 1, 0.07), 0.5);
}

TEST(NearestNeighbours, NearOnesOutvoteMoreFarOnes) {
  // Cosines 1, 0.8 and 0.8. At 0.07 one vote of exp(1 / 0.07) is above two of exp(0.8 / 0.07); at 1 it is not.
  const at::Tensor bank = at::tensor({1.0f, 0.0f, 0.8f, 0.6f, 0.8f, -0.6f}).view({3, 2});
  const at::Tensor query = at::tensor({1.0f, 0.0f}).view({1, 2});
  EXPECT_EQ(knn_accuracy(bank, label({0, 1, 1}), query, label({0}), 3, 0.07), 1);
  EXPECT_EQ(knn_accuracy(bank, label({0, 1, 1}), query, label({1}), 3, 1), 1);
  EXPECT_EQ(knn_accuracy(bank, label({0, 1, 1}), query, label({0}), 1, 1), 1) << "only the nearest one is asked";
}

TEST(NearestNeighbours, ASmallBankVotesAsAWhole) {
  const at::Tensor bank = at::eye(3);
  EXPECT_EQ(knn_accuracy(bank, label({0, 1, 2}), bank, label({0, 1, 2}), 20, 1e-4), 1) << "nothing overflows";
}

TEST(NearestNeighbours, ManyQueriesAreAskedInParts) {
  at::manual_seed(2);
  const at::Tensor bank = at::randn({700, 6});
  const at::Tensor labels = at::arange(700, at::kLong).remainder(11);
  EXPECT_EQ(knn_accuracy(bank, labels, bank, labels, 1, 0.07), 1);
  EXPECT_NEAR(knn_accuracy(bank, labels, bank, (labels + (at::arange(700) >= 600)).remainder(11), 1, 0.07), 6.0 / 7,
              1e-12);
}

TEST(NearestNeighbours, ALabelOfNoRowOfTheBankIsNeverNamed) {
  EXPECT_EQ(knn_accuracy(at::eye(2), label({0, 1}), at::eye(2), label({0, 9}), 1, 0.07), 0.5);
}

TEST(NearestNeighbours, WhatDoesNotFitIsRefused) {
  const at::Tensor bank = at::eye(2), labels = label({0, 1});
  EXPECT_THROW(knn_accuracy(bank, labels, at::zeros({0, 2}), label({}), 1, 0.07), c10::Error);
  EXPECT_THROW(knn_accuracy(bank, label({0}), bank, labels, 1, 0.07), c10::Error);
  EXPECT_THROW(knn_accuracy(bank, label({0, -1}), bank, labels, 1, 0.07), c10::Error);
  EXPECT_THROW(knn_accuracy(bank, labels, at::eye(3), label({0, 1, 2}), 1, 0.07), c10::Error);
  EXPECT_THROW(knn_accuracy(bank, labels, bank, labels, 0, 0.07), c10::Error);
  EXPECT_THROW(knn_accuracy(bank, labels, bank, labels, 1, 0), c10::Error);
}

}  // namespace
}  // namespace worker
