#include "http/curves.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace http {
namespace {

using nlohmann::ordered_json;

ordered_json to_json(const store::Curve& curve) {
  ordered_json attempts = ordered_json::array(), steps = attempts, times = attempts, values = attempts,
               lasts = attempts;
  for (const auto& [attempt, spot, is_last] : curve.points) {
    attempts.push_back(attempt);
    steps.push_back(spot.step);
    times.push_back(spot.at_ms);
    lasts.push_back(is_last ? 1 : 0);
    values.push_back(std::isfinite(spot.value) ? ordered_json(spot.value) : ordered_json());
  }
  return {{"name", curve.name},         {"values", curve.values},
          {"steps", curve.steps},       {"attempt", std::move(attempts)},
          {"step", std::move(steps)},   {"at_ms", std::move(times)},
          {"value", std::move(values)}, {"last", std::move(lasts)}};
}

ordered_json to_json(const std::vector<store::Curve>& curves) {
  ordered_json out = ordered_json::array();
  for (const auto& curve : curves) out.push_back(to_json(curve));
  return out;
}

}  // namespace

ordered_json to_json(const store::Thinned& thinned) {
  ordered_json attempts = ordered_json::array();
  for (const auto& [attempt, first, last] : thinned.attempts) {
    attempts.push_back({{"attempt", attempt}, {"first_step", first}, {"last_step", last}});
  }
  return {{"attempts", std::move(attempts)},
          {"bucket_steps", thinned.bucket_steps},
          {"series", to_json(thinned.series)},
          {"measures", to_json(thinned.measures)}};
}

}  // namespace http
