#include "fsdp/optim/muon.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <sstream>
#include <string>

#include "fsdp/engine/dry_run.h"

namespace fsdp {
namespace {

constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315, kNormEps = 1e-7;  // of torch.optim.Muon
constexpr int kIterations = 5;
const char* const kMomentum = "momentum_buffer";
enum : std::size_t { kMomentumState, kFirstMoment };

/// The matrix with its singular values near 1. `matrix` is bf16.
at::Tensor orthogonal(const at::Tensor& matrix) {
  const bool is_tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = is_tall ? matrix.t() : matrix;
  x = x.div(x.norm().clamp_min(kNormEps));
  for (int i = 0; i < kIterations; ++i) {
    const at::Tensor gram = at::matmul(x, x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, kB, kC), x, kA, 1);
  }
  return is_tall ? x.t() : x;
}

}  // namespace

bool is_hidden_matrix(const ParameterInfo& parameter) {
  if (parameter.shape.size() != 2) return false;
  for (const char* table : {"embed", "relative_attention_bias"})
    if (parameter.name.find(table) != std::string::npos) return false;
  std::istringstream parts(parameter.name);
  const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  for (std::string part; std::getline(parts, part, '.');)
    if (std::all_of(part.begin(), part.end(), is_digit)) return true;
  return false;
}

Muon::Muon(ShardedModel& model, const MuonOptions& options)
    : Optimizer(
          model, "muon",
          {{kMomentum, {.has = options.is_matrix}},
           {"exp_avg", {.has = [is_matrix = options.is_matrix](const auto& info) { return !is_matrix(info); }}},
           {"exp_avg_sq", {.has = [is_matrix = options.is_matrix](const auto& info) { return !is_matrix(info); }}}},
          options.weight_decay, options.group),
      options_(options) {}

/// Moves the parameters that are no such matrices.
void Muon::update(Batch& batch, const Update& update) {
  const Batch others = part_of(batch, [&](std::size_t i) { return !options_.is_matrix(batch.infos[i]); });
  const Betas betas = batch.group.betas.value_or(Betas{options_.beta1, options_.beta2});
  if (!others.parameters.empty())
    fused_adam(others, kFirstMoment, betas, options_.eps, /*decoupled_weight_decay=*/true, update);
}

void Muon::update_together(const std::vector<Updated>& all, const RateOf& rate, const Update& update) {
  // A dry run makes the collectives of a step that is not skipped.
  if (update.found_inf && !DryRunGuard::is_active() && update.found_inf->item<float>() != 0) return;
  Optimizer::update_together(all, rate, update);
  std::vector<const Updated*> of_segment;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (options_.is_matrix(all[i].info)) of_segment.push_back(&all[i]);
    const bool is_last = i + 1 == all.size() || all[i + 1].segment != all[i].segment;
    if (is_last && !of_segment.empty()) update_matrices(of_segment, rate, update);
    if (is_last) of_segment.clear();
  }
}

void Muon::update_matrices(const std::vector<const Updated*>& of_segment, const RateOf& rate, const Update& update) {
  Communicator& ranks = model().mesh().shard();
  Segment& segment = *of_segment.front()->segment;
  const UnitLayout& layout = segment.layout();
  const at::Tensor averages =
      at::zeros({layout.padded_numel()}, at::TensorOptions(at::kBFloat16).device(ranks.device()));
  const at::Tensor own = averages.narrow(0, ranks.rank() * layout.chunk(), layout.chunk());
  const auto state = [&](const ParameterInfo& info) {
    return layout.own_state(segment.form(kMomentum), info).in(segment.states().at(kMomentum));
  };
  for (const Updated* one : of_segment) {
    const Slice slice = layout.own(one->info);
    if (slice.length == 0) continue;
    const at::Tensor gradient = slice.in(segment.gradient_shard()), average = state(one->info);
    if (update.grad_scale) gradient.div_(*update.grad_scale);
    average.lerp_(gradient, 1 - options_.momentum);
    slice.in(own).copy_(options_.nesterov ? gradient.lerp(average, options_.momentum) : average);
  }
  ranks.all_gather_into(averages, "muon")->wait();
  for (const Updated* one : of_segment) {
    const Slice slice = layout.own(one->info);
    if (slice.length == 0) continue;
    const Update now = rate(one->group);
    const at::Tensor step = orthogonal(one->info.in(averages)).reshape({-1}).narrow(0, slice.begin, slice.length);
    const at::Tensor weights = slice.in(segment.shard());
    const auto longest = static_cast<double>(std::max(one->info.shape[0], one->info.shape[1]));
    if (now.weight_decay != 0) weights.mul_(1 - now.lr * now.weight_decay);
    weights.sub_(step.to(weights.options()), 0.2 * std::sqrt(longest) * now.lr);
  }
}

}  // namespace fsdp
