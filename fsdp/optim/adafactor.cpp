#include "fsdp/optim/adafactor.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fsdp/engine/dry_run.h"

namespace fsdp {
namespace {

constexpr double kBeta2Decay = -0.8, kLeastRms = 1e-3, kMostRms = 1;  // eps[1] and d of torch.optim.Adafactor
constexpr double kEps = std::numeric_limits<float>::epsilon();        // eps[0]
constexpr std::int64_t kRectangle = std::int64_t{1} << 20;            // elements that are updated at once
const char* const kRows = "row_var";
const char* const kColumns = "col_var";
const char* const kVariance = "variance";

/// A parameter as matrices of its last two dims, one behind the other.
struct Matrices {
  explicit Matrices(const ParameterInfo& info) {
    if (info.shape.size() < 2 || info.numel == 0) return;
    columns = info.shape.back();
    rows = *(info.shape.end() - 2);
    all_rows = info.numel / columns;
  }
  std::int64_t count() const { return all_rows / rows; }
  std::int64_t all_columns() const { return columns * count(); }
  bool is_factored() const { return all_rows > 0; }

  std::int64_t columns = 0, rows = 0;
  std::int64_t all_rows = 0;  // of all matrices
};

std::int64_t rows_of(const ParameterInfo& info) {
  return Matrices(info).all_rows;
}

std::int64_t columns_of(const ParameterInfo& info) {
  const Matrices matrices(info);
  return matrices.is_factored() ? matrices.all_columns() : 0;
}

/// Elements of a slice that are a rectangle of one of the parameter's matrices.
struct Rectangle {
  std::int64_t begin = 0;  // in the slice
  std::int64_t first_row = 0, rows = 0;
  std::int64_t first_column = 0, columns = 0;  // the first column counts those of all matrices before

  at::Tensor in(const at::Tensor& slice) const { return slice.narrow(0, begin, rows * columns).view({rows, columns}); }
  at::Tensor of_rows(const at::Tensor& all) const { return all.narrow(0, first_row, rows); }
  at::Tensor of_columns(const at::Tensor& all) const { return all.narrow(0, first_column, columns); }
};

/// A slice as rectangles of up to kRectangle elements, or of a row: the rest of a row, whole rows, and the start of a
/// row.
std::vector<Rectangle> rectangles_of(const Matrices& matrices, const Slice& slice) {
  std::vector<Rectangle> out;
  const std::int64_t end = slice.begin + slice.length, width = matrices.columns;
  for (std::int64_t at = slice.begin; at < end;) {
    const std::int64_t row = at / width, column = at % width, matrix = row / matrices.rows;
    Rectangle next{at - slice.begin, row, 1, matrix * width + column, std::min(width - column, end - at)};
    if (column == 0 && end - at >= width) {
      const std::int64_t left_in_matrix = (matrix + 1) * matrices.rows - row;
      next.rows = std::min({(end - at) / width, left_in_matrix, std::max<std::int64_t>(1, kRectangle / width)});
    }
    out.push_back(next);
    at += next.rows * next.columns;
  }
  return out;
}

/// One parameter in a step.
struct Parameter {
  Parameter(const Optimizer::Updated& updated)
      : matrices(updated.info), slice(updated.segment->layout().own(updated.info)) {
    Segment& segment = *updated.segment;
    const auto state = [&](const char* name) {
      const Slice place = segment.layout().own_state(segment.form(name), updated.info);
      return place.length > 0 ? place.in(segment.states().at(name)) : at::Tensor();
    };
    weights = slice.in(segment.shard());
    gradient = slice.in(segment.gradient_shard());
    rows = state(kRows), columns = state(kColumns), variance = state(kVariance);
    if (matrices.is_factored()) rectangles = rectangles_of(matrices, slice);
  }

  /// Values of the sums over all ranks: squares of weights, and of gradients by row and by column.
  std::int64_t sums() const { return 1 + matrices.all_rows + (matrices.is_factored() ? matrices.all_columns() : 0); }

  void add_sums(const at::Tensor& sums) const {
    if (slice.length == 0) return;
    sums[0].copy_(at::linalg_vector_norm(weights).square_());
    const at::Tensor of_rows = sums.narrow(0, 1, matrices.all_rows), of_columns = sums.slice(0, 1 + matrices.all_rows);
    for (const Rectangle& part : rectangles) {
      const at::Tensor squares = part.in(gradient).square();
      part.of_rows(of_rows).add_(squares.sum(1));
      part.of_columns(of_columns).add_(squares.sum(0));
    }
  }

  /// `weight`: of the new squares.
  void average(const at::Tensor& sums, double weight) const {
    if (variance.defined()) variance.lerp_(gradient.square(), weight);
    if (!matrices.is_factored()) return;
    const at::Tensor of_rows = sums.narrow(0, 1, matrices.all_rows), of_columns = sums.slice(0, 1 + matrices.all_rows);
    rows.lerp_(of_rows.div(static_cast<double>(matrices.columns)), weight);
    columns.lerp_(of_columns.div(static_cast<double>(matrices.rows)), weight);
  }

  /// Calls `use(weights, update)` for the parts of the slice.
  template <class Use>
  void for_each_update(const Use& use) const {
    if (!matrices.is_factored()) {
      if (slice.length > 0) use(weights, variance.clamp_min(kEps * kEps).rsqrt_().mul_(gradient));
      return;
    }
    // Every matrix has a mean of its own.
    const at::Tensor means = rows.view({matrices.count(), matrices.rows}).mean(1, /*keepdim=*/true).clamp_min_(kEps);
    const at::Tensor shares = columns.view({matrices.count(), matrices.columns}).div(means).view({-1});
    for (const Rectangle& part : rectangles) {
      at::Tensor estimate = part.of_rows(rows).unsqueeze(1) * part.of_columns(shares).unsqueeze(0);
      use(part.in(weights), estimate.clamp_min_(kEps * kEps).rsqrt_().mul_(part.in(gradient)));
    }
  }

  Matrices matrices;
  Slice slice;
  at::Tensor weights, gradient, rows, columns, variance;
  std::vector<Rectangle> rectangles;
};

double rms(const at::Tensor& sum_of_squares, std::int64_t numel) {
  return std::sqrt(sum_of_squares.item<double>() / static_cast<double>(std::max<std::int64_t>(1, numel)));
}

}  // namespace

Adafactor::Adafactor(ShardedModel& model, const AdafactorOptions& options)
    : Optimizer(model, "adafactor",
                {{kRows, {.replicated = rows_of}},
                 {kColumns, {.replicated = columns_of}},
                 {kVariance, {.has = [](const ParameterInfo& info) { return !Matrices(info).is_factored(); }}}},
                options.weight_decay, options.group) {}

void Adafactor::update_together(const std::vector<Updated>& all, const RateOf& rate, const Update& update) {
  // A dry run makes the collectives of a step that is not skipped.
  if (update.found_inf && !DryRunGuard::is_active() && update.found_inf->item<float>() != 0) return;
  if (all.empty()) return;
  Communicator& ranks = model().mesh().shard();
  const at::TensorOptions at_home = at::TensorOptions(at::kFloat).device(model().home());
  std::vector<Parameter> parameters(all.begin(), all.end());
  std::int64_t total = 0;
  for (const Parameter& one : parameters) total += one.sums();
  at::Tensor sums = at::zeros({total}, at_home);
  const auto for_each = [&](const auto& call) {
    std::int64_t at = 0;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      call(i, sums.narrow(0, at, parameters[i].sums()));
      at += parameters[i].sums();
    }
  };
  const auto sum_over_ranks = [&](at::Tensor& values) {
    at::Tensor shared = values.to(ranks.device());
    ranks.all_reduce(shared, Reduction::kSum);
    values = shared.to(values.device());
  };
  for (const Parameter& one : parameters)
    if (update.grad_scale && one.slice.length > 0) one.gradient.div_(*update.grad_scale);
  for_each([&](std::size_t i, const at::Tensor& own) { parameters[i].add_sums(own); });
  sum_over_ranks(sums);

  const std::vector<std::int64_t> steps = steps_of(all);
  at::Tensor squares = at::zeros({static_cast<std::int64_t>(all.size())}, at_home);
  for_each([&](std::size_t i, const at::Tensor& own) {
    parameters[i].average(own, std::pow(static_cast<double>(steps[i]), kBeta2Decay));
    const at::Tensor square = squares[static_cast<std::int64_t>(i)];
    parameters[i].for_each_update(
        [&](const at::Tensor& /*weights*/, const at::Tensor& step) { square.add_(step.square().sum()); });
  });
  sum_over_ranks(squares);

  const at::Tensor on_host = squares.to(at::kCPU), sums_on_host = sums.to(at::kCPU);
  std::int64_t place = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Update now = rate(all[i].group);
    const std::int64_t numel = all[i].info.numel;
    const double most = std::min(now.lr, 1 / std::sqrt(static_cast<double>(steps[i])));
    const double size = std::max(kLeastRms, rms(sums_on_host[place], numel)) * most;
    const double limit = std::max(1.0, rms(on_host[static_cast<std::int64_t>(i)], numel) / kMostRms);
    parameters[i].for_each_update([&](const at::Tensor& weights, const at::Tensor& step) {
      if (now.weight_decay != 0) weights.mul_(1 - now.lr * now.weight_decay);
      weights.sub_(step.mul_(size / limit));
    });
    place += parameters[i].sums();
  }
}

}  // namespace fsdp
