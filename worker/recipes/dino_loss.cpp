#include "worker/recipes/dino_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>

#include <limits>
#include <tuple>

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

/// -sum(targets * log softmax(student / temperature)) of each row.
at::Tensor dino_cross_entropy(const at::Tensor& log_shares, const at::Tensor& targets) {
  return -(targets * log_shares).sum(-1);
}

at::Tensor log_shares_of(const at::Tensor& answers, double temperature) {
  return at::log_softmax(answers.to(at::kFloat) / temperature, -1);
}

/// `least`: below it a distance counts as this one, and has no gradient.
at::Tensor koleo_of_crops(const at::Tensor& rows, double least) {
  constexpr double kEps = 1e-8;
  const at::Tensor x = rows / at::linalg_vector_norm(rows, 2, {-1}, /*keepdim=*/true).clamp_min(kEps);
  at::Tensor nearest;
  {
    const at::NoGradGuard no_grad;
    at::Tensor products = x.matmul(x.t());
    products.fill_diagonal_(-1);
    nearest = std::get<1>(products.max(1));
  }
  // Equal rows would have no gradient without the first epsilon, and no logarithm without the second.
  at::Tensor distance = at::linalg_vector_norm(x - x.index_select(0, nearest) + kEps, 2, {-1});
  if (least > 0) distance = distance.clamp_min(least);
  return -(distance + kEps).log().mean();
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

at::Tensor dino_loss(const at::Tensor& global, const at::Tensor& local, const at::Tensor& targets,
                     double student_temperature) {
  TORCH_CHECK(global.dim() == 2 && global.size(0) > 0 && global.size(0) % kGlobalCrops == 0 &&
                  targets.sizes() == global.sizes(),
              "dino_loss: got answers to global crops of shape ", global.sizes(), " and targets of shape ",
              targets.sizes(), "; want equal shapes [2 x images, prototypes]");
  const std::int64_t images = global.size(0) / kGlobalCrops;
  const std::int64_t local_crops = local.defined() ? local.size(0) / images : 0;
  TORCH_CHECK(!local.defined() || (local.dim() == 2 && local.size(0) == local_crops * images),
              "dino_loss: got answers to local crops of shape ", local.sizes(), "; want a multiple of ", images,
              " rows, one for each image");
  const at::Tensor shares = targets.to(at::kFloat), first = shares.narrow(0, 0, images),
                   second = shares.narrow(0, images, images);
  // The means of two halves of equal size, each counted once more, are the sum of both.
  const at::Tensor of_global = log_shares_of(global, student_temperature);
  at::Tensor sum = dino_cross_entropy(of_global.narrow(0, 0, images), second).mean() +
                   dino_cross_entropy(of_global.narrow(0, images, images), first).mean();
  if (local_crops > 0) {
    // The sum over both targets is one product with the sum of the targets.
    const at::Tensor of_local = log_shares_of(local, student_temperature).view({local_crops, images, shares.size(1)});
    sum = sum + dino_cross_entropy(of_local, (first + second).unsqueeze(0)).mean(1).sum();
  }
  return sum / static_cast<double>(kGlobalCrops * local_crops + kGlobalCrops);
}

at::Tensor ibot_loss(const at::Tensor& student, const at::Tensor& targets, const at::Tensor& weights,
                     std::int64_t crops, double student_temperature) {
  TORCH_CHECK(student.dim() == 2 && targets.sizes() == student.sizes() && weights.dim() == 1 &&
                  weights.size(0) == student.size(0) && crops >= 1,
              "ibot_loss: got answers of shape ", student.sizes(), ", targets of shape ", targets.sizes(),
              " and weights of shape ", weights.sizes(), " for ", crops,
              " crops; want [masked, prototypes] twice, [masked], and at least one crop");
  const at::Tensor rows = dino_cross_entropy(log_shares_of(student, student_temperature), targets.to(at::kFloat));
  // The authors divide by the number of global crops of an image and multiply by it.
  return (rows * weights).sum() / static_cast<double>(crops);
}

at::Tensor koleo_loss(const at::Tensor& features) {
  TORCH_CHECK(features.dim() == 2 && features.size(0) > 0 && features.size(0) % kGlobalCrops == 0,
              "koleo_loss: got features of shape ", features.sizes(), "; want [2 x images, hidden]");
  // The gradient is one over the distance. Of images that fp16 cannot tell apart it has no direction, and overflows.
  const double least =
      features.scalar_type() == at::kHalf ? static_cast<double>(std::numeric_limits<at::Half>::epsilon()) : 0.0;
  const at::Tensor rows = features.to(at::kFloat);
  if (rows.size(0) == kGlobalCrops) return rows.sum() * 0;
  at::Tensor sum;
  for (const at::Tensor& crops : rows.chunk(kGlobalCrops)) {
    const at::Tensor loss = koleo_of_crops(crops, least);
    sum = sum.defined() ? sum + loss : loss;
  }
  return sum;
}

}  // namespace worker
