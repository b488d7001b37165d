#pragma once

#include <algorithm>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "controller/store/metric_rows.h"

namespace test {

/// Runs of four ranks that are resumed, with series of every kind. Ranks report late, some rows come twice, and some
/// never. Values are eighths, so that sums are the same in any order.
inline std::vector<store::MetricRow> random_rows(unsigned seed) {
  std::mt19937 random(seed);
  const auto number = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most)); };
  std::vector<std::pair<int, store::MetricRow>> rows;
  int when = 0;
  core::Step from = number(3);
  for (core::AttemptNumber attempt = 1; attempt <= 3; ++attempt) {
    const core::Step end = from + 900 + number(1500);
    for (core::Step step = from; step < end; step += number(20) == 0 ? 1 + number(70) : 1) {
      ++when;
      for (core::RankNumber rank = 0; rank < 4; ++rank) {
        if (number(50) == 0) continue;
        store::MetricRow row{.job = 1, .attempt = attempt, .rank = rank, .step = step, .at_ms = 10 * when + rank};
        row.step_ms = number(1000);
        if (number(9) > 0) row.memory_peak_bytes = number(1 << 30);
        row.bytes_communicated = number(1000);
        for (const char* name : {"rate", "mean", "sum", "max"}) {
          if (number(12) > 0)
            row.values.push_back(
                {name, number(300) == 0 ? std::numeric_limits<double>::quiet_NaN() : number(100000) / 8.0});
        }
        const int late = number(40) == 0 ? 600 : number(60);
        rows.emplace_back(when + late, row);
        if (number(30) == 0) rows.emplace_back(when + late + 300, row);
      }
    }
    from = end - 1 - number(700);
    when += 1000;
  }
  std::ranges::stable_sort(rows, {}, &std::pair<int, store::MetricRow>::first);
  std::vector<store::MetricRow> ordered;
  for (auto& [at, row] : rows) ordered.push_back(std::move(row));
  return ordered;
}

inline const std::vector<store::DeclaredSeries> kDeclared{{1, {.name = "rate", .over_ranks = spec::OverRanks::kRank0}},
                                                          {1, {.name = "mean", .over_ranks = spec::OverRanks::kMean}},
                                                          {1, {.name = "sum", .over_ranks = spec::OverRanks::kSum}},
                                                          {1, {.name = "max", .over_ranks = spec::OverRanks::kMax}}};

}  // namespace test
