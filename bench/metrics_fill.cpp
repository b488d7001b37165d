// Writes the metrics of a long training into a database, through the store.
//
// Usage: metrics_fill DATABASE JOB STEPS
// The first attempt makes nine tenths of the steps. The second attempt resumes a little before the first one's end.
// Rank 0 reports four series at each step, and the validation loss at each thousandth. No musterd may have the database
// open. Prints {"rows": the number of steps, "seconds": the time of writing}.
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <vector>

#include "controller/store/sqlite_store.h"

namespace {

constexpr std::size_t kRowsAtOnce = 512;
constexpr core::Step kRepeated = 500;
constexpr core::Step kValidationEvery = 1000;

store::MetricRow row_of(core::JobId job, core::AttemptNumber attempt, core::Step step) {
  const double noise = std::sin(static_cast<double>(step * step % 104'729));
  const double loss = 2 + 8 * std::exp(-static_cast<double>(step) / 2e5) + 0.2 * noise;
  store::MetricRow row{
      .job = job,
      .attempt = attempt,
      .step = step,
      .step_ms = 100 + 5 * noise,
      .memory_bytes = 1 << 30,
      .memory_peak_bytes = (1LL << 30) + step,
      .bytes_communicated = 1 << 20,
      .at_ms = 1'767'225'600'000 + attempt * 60'000 + step * 100,
      .values = {
          {"loss", loss}, {"tokens_per_s", 1e5 + 1e3 * noise}, {"learning_rate", 3e-4}, {"grad_norm", 1 + noise}}};
  if (step % kValidationEvery == 0) row.values.push_back({"validation/loss", loss + 0.1});
  return row;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: metrics_fill DATABASE JOB STEPS\n";
    return 2;
  }
  const core::JobId job = std::atoll(argv[2]);
  const core::Step steps = std::atoll(argv[3]), resumed = steps * 9 / 10;
  const auto store = store::open_sqlite_store(argv[1]);
  std::vector<store::DeclaredSeries> declared;
  for (const char* name : {"loss", "tokens_per_s", "learning_rate", "grad_norm", "validation/loss"}) {
    auto series = spec::undeclared_series(name);
    series.over_ranks = spec::OverRanks::kRank0;
    declared.push_back({job, series});
  }
  store->add_metrics({}, declared);
  std::vector<store::MetricRow> rows;
  std::size_t written = 0;
  const auto begun = std::chrono::steady_clock::now();
  const auto write = [&] {
    store->add_metrics(rows);
    written += rows.size();
    rows.clear();
  };
  const auto add = [&](core::AttemptNumber attempt, core::Step from, core::Step to) {
    for (auto step = from; step <= to; ++step) {
      rows.push_back(row_of(job, attempt, step));
      if (rows.size() == kRowsAtOnce) write();
    }
  };
  add(1, 1, resumed);
  add(2, resumed - kRepeated + 1, steps);
  write();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  std::cout << "{\"rows\": " << written << ", \"seconds\": " << took.count() << "}\n";
}
