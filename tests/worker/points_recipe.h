#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "train/recipe.h"

namespace worker::testing {

/// What recipes of tests whose data are numbered points have in common. Model and loss are their own.
class PointsRecipe : public Recipe {
 public:
  explicit PointsRecipe(std::int64_t points) : points_(points) {}
  std::string data_source() const override { return "points"; }
  void load_data(const std::string&) override {}
  std::string data_fingerprint() const override { return "points"; }
  std::string data_note() const override { return ""; }
  std::string data_name() const override { return "points"; }
  std::int64_t train_samples() const override { return points_; }
  std::int64_t validation_samples() const override { return 0; }
  std::int64_t tokens_per_sample() const override { return 1; }
  std::map<std::string, std::string> export_texts(at::ScalarType) const override { return {}; }
  int layers_above(const std::string&) const override { return 0; }
  double weight(const std::vector<std::int64_t>& samples) override { return static_cast<double>(samples.size()); }
  at::Tensor loss_without_data(std::int64_t samples) override {
    return loss(std::vector<std::int64_t>(static_cast<std::size_t>(samples)));
  }

 private:
  const std::int64_t points_;
};

}  // namespace worker::testing
