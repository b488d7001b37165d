#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/fd.h"
#include "worker/train/hooks/hook.h"

namespace worker {

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

}  // namespace worker
