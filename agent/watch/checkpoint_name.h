#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace agent::watch {

/// The step of a checkpoint by its name.
struct NamedStep {
  /// What stands before the number: a word of a step ("step=1200"), of a checkpoint ("ckpt-1200"), or of what is saved
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

/// Whether the name is that of a file or folder that is being written: a word of it is tmp, temp, partial, incomplete
/// or lock.
bool is_draft_name(std::string_view name);

}  // namespace agent::watch
