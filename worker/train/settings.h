#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "fsdp/text/json.h"
#include "worker/train/train_config.h"

namespace worker {

/// The log of one rank: lines on stdout, each written at once.
class RankLog {
 public:
  explicit RankLog(int rank) : rank_(rank) {}

  /// Writes "[rank 3] " and a line formatted as by std::printf.
  template <class... Args>
  void say(const char* format, Args... args) const {
    char line[2048];
    std::snprintf(line, sizeof line, format, args...);
    std::printf("[rank %d] %s\n", rank_, line);
    std::fflush(stdout);
  }
  void say(const char* text) const { say("%s", text); }
  void say(const std::string& text) const { say("%s", text.c_str()); }

 private:
  int rank_;
};

/// Writes the value of each key of a run, as people write it, into the member "extra" of a checkpoint. The batch size
/// is the one that was derived. So a resume can say what is set otherwise.
void save_settings(const RunConfig& config, const BatchSplit& split, fsdp::Json& extra);

/// Settings of this run that differ from those of the run that saved a checkpoint: "train.batch_size = 32 (16 until
/// then)". Empty for checkpoints that do not record settings. A key that the saving program may not have had counts
/// only with another value than its default.
std::vector<std::string> changed_settings(const RunConfig& config, const BatchSplit& split, const fsdp::Json& extra);

/// Returns the same settings in one text, with commas between.
std::string changes_text(const RunConfig& config, const BatchSplit& split, const fsdp::Json& extra);

}  // namespace worker
