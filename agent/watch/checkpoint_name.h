#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace agent::watch {

/// The step of a checkpoint by its name.
struct NamedStep {
  /// The word before the number: one of a step ("step=1200"), of a checkpoint ("ckpt-1200"), or of what is saved
  /// ("model_1200"). kAlone: no word ("1200.pt"). kEpoch: the name has no number but that of an epoch.
  enum class By { kStep, kCheckpoint, kModel, kAlone, kEpoch };
  std::int64_t step = 0;
  By by = By::kAlone;
  bool operator==(const NamedStep&) const = default;
};

/// The step that a name tells, without its extension; nullopt: it tells none. The first of these counts, of several the
/// last:
/// 1. the number behind step, iter, iteration, update, batch ("ba") or their plurals: "iter_0000400", "global_step400"
/// 2. the number behind checkpoint, ckpt or snapshot: "checkpoint-500"
/// 3. the number behind model, weights, state or save: "model_500"
/// 4. a number by itself. Digits within a word ("bf16", "7b", "rank0"), decimals ("0.80"), dates ("20261128"), what
///    stands behind "of", and numbers of parts ("rank_0", "model-00001-of-00002") do not count
/// 5. the number behind epoch
std::optional<NamedStep> step_in_name(std::string_view name);

/// The step that digits tell; nullopt: they are no number, or none that a step can have.
std::optional<std::int64_t> step_of_digits(std::string_view digits);

/// True if the name is that of a file or folder that is being written: a word of it is tmp, temp, partial, incomplete
/// or lock.
bool is_draft_name(std::string_view name);

/// The save that a file of a checkpoint folder belongs to.
struct SaveOfFile {
  std::string name;       // "run/checkpoint-500", "run/step 100", "last.pt"; the same for all files of a save
  bool has_step = false;  // a name tells its step or its epoch
  bool operator==(const SaveOfFile&) const = default;
};

/// The save of each file, by paths below the checkpoint folder.
///
/// A save is a folder whose name tells a step or an epoch, with all below it: "run/checkpoint-500". In a folder of an
/// epoch, names with a step are saves of their own. In other folders the files whose names tell the same step are one.
/// Files that tell no step belong together with the others of their folder at the top: "run/". At the top itself each
/// is a save of its own, and so are all parts of one ("model-00001-of-00003.safetensors").
///
/// Where files of ranks lie in a folder ("rng_state_0.pth", "optimizer_1.bin"), a number tells a step only behind a
/// word of one: "model_1.safetensors" is a rank's.
std::vector<SaveOfFile> saves_of(const std::vector<std::string>& files);

}  // namespace agent::watch
