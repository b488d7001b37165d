#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "worker/models/layers/layers.h"
#include "worker/train/recipe.h"

namespace worker::testing {

/// Base of the recipes of tests whose data are numbered points. Model and loss are each recipe's own.
class PointsRecipe : public Recipe {
 public:
  /// Points [0, points) train, and the next `validation` ones validate.
  explicit PointsRecipe(std::int64_t points, std::int64_t validation = 0) : points_(points), validation_(validation) {}
  std::string data_source() const override { return "points"; }
  RunData open_data(const std::string&, const agent::rank::RankEnvironment&) override {
    return {"points", "points", "", 0};
  }
  std::shared_ptr<const BatchSource> data(Split split) const override {
    if (split == Split::kValidation && validation_ == 0) return nullptr;
    return split == Split::kTrain ? std::make_shared<Source>(*this, 0, points_)
                                  : std::make_shared<Source>(*this, points_, validation_);
  }
  Batch of_sizes(std::int64_t samples) const override {
    return batch_of(std::vector<std::int64_t>(static_cast<std::size_t>(samples)));
  }
  std::string why_no_fixed_shapes() const override { return ""; }
  fsdp::ShardedModel& exported(Parts& parts, fsdp::ExportOptions&) override { return parts.trained(); }

 protected:
  /// The batch of these points.
  virtual Batch batch_of(const std::vector<std::int64_t>& points) const = 0;

 private:
  class Source : public BatchSource {
   public:
    Source(const PointsRecipe& recipe, std::int64_t first, std::int64_t count)
        : recipe_(recipe), first_(first), count_(count) {}
    std::int64_t samples() const override { return count_; }
    Batch collate(std::span<const std::int64_t> samples, std::span<const std::uint64_t>) const override {
      std::vector<std::int64_t> points;
      for (const auto sample : samples) points.push_back(first_ + sample);
      return recipe_.batch_of(points);
    }

   private:
    const PointsRecipe& recipe_;
    const std::int64_t first_, count_;
  };

  const std::int64_t points_, validation_;
};

}  // namespace worker::testing
