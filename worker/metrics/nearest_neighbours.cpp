#include "worker/metrics/nearest_neighbours.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>

namespace worker {
namespace {

constexpr std::int64_t kQueriesAtOnce = 256;

at::Tensor directions(const at::Tensor& rows) {
  const at::Tensor wide = rows.to(at::kFloat);
  return wide / at::linalg_vector_norm(wide, 2, {-1}, /*keepdim=*/true).clamp_min(1e-12);
}

void check_features(const at::Tensor& rows, const at::Tensor& labels, const char* which) {
  TORCH_CHECK(rows.dim() == 2 && rows.is_floating_point() && rows.size(0) > 0 && labels.dim() == 1 &&
                  labels.scalar_type() == at::kLong && labels.size(0) == rows.size(0),
              "knn_accuracy: the ", which, " has features ", rows.toString(), " ", rows.sizes(), " and labels ",
              labels.toString(), " ", labels.sizes(),
              "; want floating-point [rows, size] with at least one row, and "
              "int64 [rows]");
  const auto least = labels.min().item<std::int64_t>();
  TORCH_CHECK(least >= 0, "knn_accuracy: the ", which, " has the label ", least, "; want labels from 0");
}

}  // namespace

double knn_accuracy(const at::Tensor& bank, const at::Tensor& bank_labels, const at::Tensor& queries,
                    const at::Tensor& labels, std::int64_t k, double temperature) {
  const at::NoGradGuard no_grad;
  check_features(bank, bank_labels, "bank");
  check_features(queries, labels, "queries");
  TORCH_CHECK(bank.size(1) == queries.size(1), "knn_accuracy: features of the bank have ", bank.size(1),
              " elements and those of the queries ", queries.size(1), "; want as many");
  TORCH_CHECK(k >= 1 && temperature > 0, "knn_accuracy: got k = ", k, " and temperature = ", temperature,
              "; want at least 1, and a number above 0");
  const at::Tensor of_bank = directions(bank), of_queries = directions(queries);
  const std::int64_t neighbours = std::min(k, bank.size(0));
  const std::int64_t classes = bank_labels.max().item<std::int64_t>() + 1;
  std::int64_t right = 0;
  for (std::int64_t begin = 0; begin < queries.size(0); begin += kQueriesAtOnce) {
    const std::int64_t count = std::min(kQueriesAtOnce, queries.size(0) - begin);
    const auto [cosines, rows] = of_queries.narrow(0, begin, count).matmul(of_bank.t()).topk(neighbours);
    // All votes of a query may be divided by the same number. Divided by its largest one they cannot overflow.
    const at::Tensor votes = ((cosines - cosines.narrow(1, 0, 1)) / temperature).exp();
    const at::Tensor named = bank_labels.index_select(0, rows.flatten()).view(rows.sizes());
    const at::Tensor sums = at::zeros({count, classes}, votes.options()).scatter_add_(1, named, votes);
    right += (sums.argmax(1) == labels.narrow(0, begin, count)).sum().item<std::int64_t>();
  }
  return static_cast<double>(right) / static_cast<double>(queries.size(0));
}

}  // namespace worker
