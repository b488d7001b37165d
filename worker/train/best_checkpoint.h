#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "fsdp/json.h"
#include "schema/series.h"

namespace worker {

/// Which checkpoint of a run is the best by one series, "checkpoint.best" of the run file.
///
/// [Note: best checkpoint] A step with a better value than the best so far is offered. The step's checkpoint then holds
/// the offer in its manifest, extra.best = {series, value, step}, so that offer and weights are committed together.
/// Every later checkpoint holds the same, so the newest one always tells the best. The checkpointer removes old ones
/// only after a commit, and never the step that the newest manifest tells. Thus after a crash between any two lines the
/// newest checkpoint names a best one that is there: the old one before the commit, the new one from it on. A save that
/// fails takes its offer back.
///
/// States: nothing offered -> offer() -> offered -> committed() or dropped(). Without I/O. Not thread-safe.
class BestCheckpoint {
 public:
  /// No series: nothing is ever offered, and nothing is told.
  BestCheckpoint() = default;
  explicit BestCheckpoint(schema::Series series) : series_(std::move(series)) {}

  /// Empty: no series.
  const std::string& series() const { return series_.name; }

  /// True for a finite value that is better than that of the step kept so far, if any. Only a step that really is to be
  /// saved now may be offered.
  bool is_better(double value) const;
  /// What the checkpoint of `step` is to tell. The caller saves it next and calls committed() or dropped().
  void offer(std::int64_t step, double value) { offered_ = Choice{value, step}; }
  /// True if a step was offered: it is the one that is kept from now on.
  bool committed();
  void dropped() { offered_.reset(); }

  /// The step to keep besides the newest ones: the one offered, else the one kept.
  std::optional<std::int64_t> step() const;
  /// The same for a manifest's extra.best; null: there is none.
  fsdp::Json manifest() const;
  /// Takes a manifest's extra.best for what is kept. False, and nothing is kept: it is of another series, or not whole.
  bool restore(const fsdp::Json& saved);
  /// What is kept was lost from the disk.
  void forget() { kept_.reset(); }

  /// "best validation/loss 2.31 at step 120 (kept in <folder>)" of the one that is kept; call it with one alone.
  std::string line(const std::filesystem::path& checkpoint) const;

 private:
  struct Choice {
    double value = 0;
    std::int64_t step = 0;
  };
  const std::optional<Choice>& told() const { return offered_ ? offered_ : kept_; }

  schema::Series series_;
  std::optional<Choice> kept_, offered_;
};

/// By the series that a run of this kind of recipe names in checkpoint.best; none for "". Throws UsageError when the
/// recipe does not report it, or when it has no good values.
BestCheckpoint best_checkpoint_of(std::string_view recipe, const std::string& series);

}  // namespace worker
