#include "worker/recipes/dino_targets.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>

#include <limits>

namespace worker {
namespace {

at::Tensor checked_answers(const at::Tensor& answers, const char* place) {
  TORCH_CHECK(answers.dim() == 2, place, ": got answers of shape ", answers.sizes(), "; want [rows, prototypes]");
  return answers.to(at::kFloat);
}

void check_centre(const at::Tensor& centre, const at::Tensor& answers, const char* place) {
  TORCH_CHECK(centre.dim() == 2 && centre.size(0) == 1 && centre.size(1) == answers.size(1), place,
              ": got a centre of shape ", centre.sizes(), " for answers of shape ", answers.sizes(), "; want [1, ",
              answers.size(1), "]");
}

void check_temperature(double temperature, const char* place) {
  TORCH_CHECK(temperature > 0, place, ": got temperature ", temperature, "; want a number above 0");
}

}  // namespace

at::Tensor centred_softmax(const at::Tensor& answers, const at::Tensor& centre, double temperature) {
  const at::NoGradGuard no_grad;
  const at::Tensor wide = checked_answers(answers, "centred_softmax");
  check_centre(centre, answers, "centred_softmax");
  check_temperature(temperature, "centred_softmax");
  return at::softmax((wide - centre.to(at::kFloat)) / temperature, -1);
}

at::Tensor updated_centre(const at::Tensor& centre, const at::Tensor& answers, double momentum,
                          const ReduceOverRanks& sum) {
  const at::NoGradGuard no_grad;
  const at::Tensor wide = checked_answers(answers, "updated_centre");
  check_centre(centre, answers, "updated_centre");
  // The last element counts the rows.
  const at::Tensor rows = at::full({1}, static_cast<double>(wide.size(0)), wide.options());
  at::Tensor sums = at::cat({wide.sum(0), rows});
  sum(sums);
  const at::Tensor all = sums.narrow(0, wide.size(1), 1), before = centre.to(at::kFloat);
  const at::Tensor mean = sums.narrow(0, 0, wide.size(1)) / all.clamp_min(1);
  return at::where(all > 0, momentum * before + (1 - momentum) * mean, before);
}

at::Tensor sinkhorn_knopp(const at::Tensor& answers, double temperature, std::int64_t rounds,
                          const ReduceOverRanks& sum, const ReduceOverRanks& max) {
  const at::NoGradGuard no_grad;
  constexpr double kLeast = std::numeric_limits<float>::min();  // keeps 0 / 0 away
  const at::Tensor wide = checked_answers(answers, "sinkhorn_knopp");
  check_temperature(temperature, "sinkhorn_knopp");
  TORCH_CHECK(rounds >= 1, "sinkhorn_knopp: got ", rounds, " rounds; want at least 1");
  at::Tensor largest =
      wide.size(0) > 0 ? wide.amax() : at::full({}, -std::numeric_limits<float>::infinity(), wide.options());
  max(largest);
  // A factor for all shares alike disappears in the next scaling. So neither the largest answer nor the numbers of rows
  // and prototypes, by which the authors divide, change the result.
  at::Tensor shares = ((wide - largest) / temperature).exp();
  for (std::int64_t round = 0; round < rounds; ++round) {
    at::Tensor of_prototype = shares.sum(0);
    sum(of_prototype);
    shares = shares / of_prototype.clamp_min(kLeast);
    shares = shares / shares.sum(1, /*keepdim=*/true).clamp_min(kLeast);
  }
  return shares;
}

}  // namespace worker
