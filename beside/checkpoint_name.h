#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace beside {

/// The step of a checkpoint by its name.
struct NamedStep {
  /// kWord: a word before the number says so ("step=1200"). kAlone: the number stands by itself ("weights.12.h5").
  /// kEpoch: the name has no number but that of an epoch.
  enum class By { kWord, kAlone, kEpoch };
  std::int64_t step = 0;
  By by = By::kAlone;
  bool operator==(const NamedStep&) const = default;
};

/// The step that a name tells, without its extension; nullopt: it tells none. The first of these counts, of several the
/// last:
/// 1. the number behind step, iter, iteration, update, batch ("ba") or their plurals: "iter_0000400", "global_step400"
/// 2. the number behind checkpoint, ckpt, snapshot, model, weights or state: "checkpoint-500"
/// 3. a number by itself. Digits within a word ("bf16", "7b", "rank0"), decimals ("0.80"), dates ("20261128"), and what
///    stands behind "of" ("00001-of-00002") do not count
/// 4. the number behind epoch
std::optional<NamedStep> step_in_name(std::string_view name);

/// The step that digits tell; nullopt: they are no number, or none that a step can have.
std::optional<std::int64_t> step_of_digits(std::string_view digits);

/// Whether the name is that of a file or folder that is being written: a word of it is tmp, temp, partial, incomplete
/// or lock.
bool is_draft_name(std::string_view name);

}  // namespace beside
