#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "fsdp/files/checkpoint.h"
#include "worker/train/fence.h"
#include "worker/train/hooks/hooks.h"
#include "worker/train/saves.h"
#include "worker/train/setup.h"
#include "worker/train/step_measures.h"

namespace worker {

/// The checkpoints of a run, and the state that they hold beside the parts.
class Resume {
 public:
  /// Opens the checkpoint folder and continues from its newest checkpoint, or begins with the recipe's first values.
  /// Collective. Throws base::UsageError for a folder that cannot be used, and where all checkpoints are damaged,
  /// because starting at step 0 would silently discard the job's work; FencedError; and as fsdp::Checkpointer. `setup`
  /// must outlive the object.
  explicit Resume(Setup& setup);

  /// Refuses what a rank of an old attempt may not do. Collective.
  void check_not_fenced();

  std::int64_t step = 0;  ///< finished ones
  SkippedSteps skipped;
  BestCheckpoint best;
  std::optional<Saves> saves;
  std::vector<std::unique_ptr<Hook>> hooks;  ///< those of this rank

 private:
  void give_first_values();
  void make_hooks();
  void open_folder();
  std::optional<fsdp::LoadedCheckpoint> load_newest();
  void restore(const fsdp::LoadedCheckpoint& loaded);
  void restore_state(const fsdp::CheckpointState& state, const std::filesystem::path& path);
  void restore_best(const fsdp::Json& extra);

  Setup& setup_;
  std::optional<Fence> fence_;
  std::unique_ptr<fsdp::Checkpointer> checkpointer_;
};

}  // namespace worker
