#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "agent/rank/reporter.h"
#include "base/fd.h"
#include "fsdp/text/json.h"
#include "spec/series.h"

namespace worker {

/// Observer of a training from step to step. A hook makes no collective calls, and changes no weight.
class Hook {
 public:
  virtual ~Hook() = default;

  /// The training begins or goes on after `step` finished steps.
  virtual void began(std::int64_t /*step*/) {}
  /// The numbers of a step are known. `evaluated`: those of an evaluation after it are among them. On GPUs a step's
  /// numbers come a step late.
  virtual void step(const agent::rank::StepReport& report, bool evaluated) = 0;
  /// Why the training should end before its last step; empty: it should not. Rank 0's answer counts, after each
  /// evaluation and at the start.
  virtual std::string wants_stop() const { return {}; }

  /// Writes into a checkpoint's manifest what load() takes back.
  virtual void save(fsdp::Json& /*extra*/) const {}
  virtual void load(const fsdp::Json& /*extra*/) {}
};

/// Writes the values of all steps into train.log_folder: metrics.jsonl, and an event file of TensorBoard for each
/// attempt. Rank 0 alone has this hook. A step that is made again after a resume stands in metrics.jsonl once: its
/// earlier lines, of steps that no checkpoint holds, are removed. TensorBoard does the same when it reads.
///
/// A disk that takes nothing costs a warning, not the training.
class LogFiles : public Hook {
 public:
  /// Creates the folder. Throws base::UsageError naming train.log_folder where it cannot be written.
  LogFiles(std::filesystem::path folder, std::int64_t attempt, std::function<void(const std::string&)> say);

  void began(std::int64_t step) override;
  void step(const agent::rank::StepReport& report, bool evaluated) override;

 private:
  void write(const base::Fd& file, const std::string& bytes);

  const std::filesystem::path folder_;
  const std::int64_t attempt_;
  const std::function<void(const std::string&)> say_;
  base::Fd lines_, events_;
  bool warned_ = false;
};

/// Says in the log how far a training is and how long it will take: "12 % of 400 steps, epoch 0.43, about 3m20s left".
/// At most once in kPause, from the second step of an attempt on. The time left counts what came between the steps,
/// such as evaluations and saves, and none for what the first step needs beside its work.
class Progress : public Hook {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kPause{30};

  struct Options {
    std::int64_t steps = 1;                       ///< of the whole training
    double epochs_a_step = 0;                     ///< passes over the data that one step makes
    std::function<void(const std::string&)> say;  ///< writes a line of the log
    std::function<Clock::time_point()> now = [] { return Clock::now(); };
  };
  explicit Progress(Options options);

  void step(const agent::rank::StepReport& report, bool evaluated) override;

 private:
  const Options options_;
  std::int64_t first_ = -1;  // the first told step of this attempt
  Clock::time_point began_, said_;
};

/// "3m20s", "2h05m", "12s".
std::string time_text(std::chrono::seconds time);

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
