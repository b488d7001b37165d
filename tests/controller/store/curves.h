#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "controller/store/metric_rows.h"

namespace test {

/// "1/5=2.5": attempt, step and value of each point.
inline std::string text_of(const store::Curve& curve) {
  std::string text;
  for (const auto& [attempt, spot, is_last] : curve.points) {
    const auto value = std::isnan(spot.value) ? "nan" : std::to_string(static_cast<int>(spot.value));
    text += (text.empty() ? "" : " ") + std::to_string(attempt) + "/" + std::to_string(spot.step) + "=" + value;
  }
  return text;
}

inline const store::Curve& curve(const store::Thinned& thinned, const std::string& name) {
  for (const auto* curves : {&thinned.series, &thinned.measures}) {
    for (const auto& one : *curves) {
      if (one.name == name) return one;
    }
  }
  throw std::out_of_range("no curve " + name);
}

inline std::vector<store::ThinRequest> requests() {
  return {{.job = 1, .points = 4},
          {.job = 1, .points = 40},
          {.job = 1, .points = 400},
          {.job = 1, .points = 20'000},
          {.job = 1, .from = 777, .to = 2345, .points = 60},
          {.job = 1, .after_attempt = 2, .after_step = 1600, .points = 50},
          {.job = 1, .points = 300, .logarithmic = true}};
}

inline void expect_equal(const store::Thinned& one, const store::Thinned& other) {
  EXPECT_EQ(one.bucket_steps, other.bucket_steps);
  ASSERT_EQ(one.series.size(), other.series.size());
  ASSERT_EQ(one.measures.size(), other.measures.size());
  const auto compare = [](const store::Curve& a, const store::Curve& b) {
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.values, b.values);
    EXPECT_EQ(text_of(a), text_of(b)) << a.name;
    ASSERT_EQ(a.points.size(), b.points.size());
    for (std::size_t i = 0; i < a.points.size(); ++i) EXPECT_EQ(a.points[i].spot.at_ms, b.points[i].spot.at_ms);
  };
  for (std::size_t i = 0; i < one.series.size(); ++i) compare(one.series[i], other.series[i]);
  for (std::size_t i = 0; i < one.measures.size(); ++i) compare(one.measures[i], other.measures[i]);
}

}  // namespace test
