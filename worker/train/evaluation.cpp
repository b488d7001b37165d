#include "worker/train/evaluation.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "worker/train/recipe.h"

namespace worker {

Evaluation::Evaluation(const RunConfig& config, const BatchSplit& split, Parts& parts, const BatchSource* validation)
    : config_(config), split_(split), parts_(parts), validation_(validation) {
  parts_.set_training(false);
}

Evaluation::~Evaluation() {
  parts_.set_training(true);
}

std::int64_t Evaluation::samples() const {
  if (validation_ == nullptr) return 0;
  return std::min(validation_->samples(), config_.train.validation_batches * split_.batch_size);
}

void Evaluation::each(const std::function<void(const Batch& batch, bool counts)>& measure) {
  const std::int64_t count = samples(), micro = split_.micro_batch_size;
  const int rank = mesh().rank(), ranks = mesh().world_size();
  const auto seed = static_cast<std::uint64_t>(config_.train.seed);
  for (std::int64_t base = 0; base < count; base += micro * ranks) {
    const std::int64_t begin = base + rank * micro, end = std::min(begin + micro, count);
    std::vector<std::int64_t> chosen;
    for (std::int64_t i = begin; i < end; ++i) chosen.push_back(i);
    const bool counts = !chosen.empty();
    if (!counts) chosen.push_back(0);
    std::vector<std::uint64_t> draws;
    for (const std::int64_t sample : chosen) draws.push_back(sample_draw(seed, 0, sample));
    measure(validation_->collate(chosen, draws).to(mesh().device()), counts);
  }
}

Evaluation::Mean& Evaluation::mean(std::string_view series) {
  const auto found = std::ranges::find(means_, series, &Mean::series);
  return found != means_.end() ? *found : means_.emplace_back(Mean{std::string(series)});
}

void Evaluation::add(std::string_view series, double sum, double weight) {
  Mean& of_series = mean(series);
  of_series.sum += sum;
  of_series.weight += weight;
}

double Evaluation::value(std::string_view series) {
  const Mean& of_series = mean(series);
  if (of_series.is_set) return of_series.sum;
  return mesh().control().all_reduce(of_series.sum) / mesh().control().all_reduce(of_series.weight);
}

void Evaluation::set(std::string_view series, double value) {
  mean(series) = {std::string(series), value, 1, true};
}

void Evaluation::add(std::string_view tally, std::span<const std::int64_t> counts) {
  auto& all = tallies_[std::string(tally)];
  all.resize(std::max(all.size(), counts.size()));
  for (std::size_t i = 0; i < counts.size(); ++i) all[i] += counts[i];
}

std::vector<std::int64_t> Evaluation::agreed(std::string_view tally) {
  const auto& own = tallies_[std::string(tally)];
  // Exact in doubles below 2^53.
  at::Tensor sums = at::empty({static_cast<std::int64_t>(own.size())}, at::kDouble);
  std::ranges::copy(own, sums.mutable_data_ptr<double>());
  if (!own.empty()) mesh().control().all_reduce(sums);
  const auto* sum = sums.const_data_ptr<double>();
  return {sum, sum + own.size()};
}

std::vector<agent::rank::SeriesValue> Evaluation::finish() {
  averaged_.end();
  std::vector<agent::rank::SeriesValue> out;
  for (const Mean& of_series : means_) out.push_back({of_series.series, value(of_series.series)});
  return out;
}

void Recipe::evaluate(Evaluation& evaluation) {
  evaluation.each([&](const Batch& batch, bool counts) {
    const double sum = loss(batch).sum.item<double>();
    if (counts) evaluation.add("validation/loss", sum, batch.weight);
  });
}

}  // namespace worker
