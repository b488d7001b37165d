#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "spec/series.h"
#include "worker/train/hooks/hook.h"

namespace worker {

/// Ends a training whose evaluations no longer find better values: train.early_stop. An evaluation counts when its
/// value is not better than the best one by more than train.early_stop_least; a value that is no number counts, too.
class EarlyStop : public Hook {
 public:
  /// `series` has a better direction. `patience` is at least 1.
  EarlyStop(spec::Series series, std::int64_t patience, double least);

  void step(const agent::rank::StepReport& report, bool evaluated) override;
  std::string wants_stop() const override;
  void save(fsdp::Json& extra) const override;
  void load(const fsdp::Json& extra) override;

 private:
  const spec::Series series_;
  const std::int64_t patience_;
  const double least_;
  std::optional<double> best_;
  std::int64_t best_step_ = 0, without_ = 0;  // evaluations in a row without a better value
};

}  // namespace worker
