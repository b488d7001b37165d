#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace worker {

/// The share of queries that their neighbours name rightly: how well features tell classes apart without any training
/// (Wu et al., "Unsupervised Feature Learning via Non-Parametric Instance Discrimination", arXiv 1805.01978; the k-NN
/// evaluation of DINO). Features get length 1. Each of the `k` rows of the bank with the largest cosines votes for its
/// class with exp(cosine / temperature). The class with the most wins, and the lowest one of equals.
///
/// bank is [rows, size] and queries are [count, size], floating-point; labels are int64 [rows] and [count], from 0. A
/// bank of fewer than `k` rows votes as a whole. Features are compared in fp32, and memory beside them is that of 256 x
/// rows numbers. Throws c10::Error naming shapes that do not fit, an empty bank, no queries, k below 1, a temperature
/// of 0 or less, and a negative label.
double knn_accuracy(const at::Tensor& bank, const at::Tensor& bank_labels, const at::Tensor& queries,
                    const at::Tensor& labels, std::int64_t k, double temperature);

}  // namespace worker
