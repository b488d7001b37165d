#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace base {

/// The meaning that a word in the name of a saved file gives to the number behind it.
enum class NumberWord {
  kStep,        // step, iter, iteration, update, batch ("ba"), and their plurals
  kCheckpoint,  // checkpoint, ckpt, snapshot
  kModel,       // model, weights, state, save: the step, or which of several files
  kEpoch,
  kOf,     // of how many
  kPart,   // rank, shard, part, mp, pp: which of several files
  kOther,  // nothing
};
NumberWord number_word(std::string_view word);

/// A name of the form "<before><number>-of-<count><after>".
struct NumberOf {
  std::string before, after;
  std::int64_t number = 0, count = 0;
  std::string count_text;
  /// kNo: step `number` of a training of `count` steps, such as "step100-of-4000.pt". kYes: a part of one save.
  /// kIfListed: a part only where an index beside it lists parts, such as "model-1-of-3.bin" with
  /// "model.bin.index.json".
  enum class IsPart { kNo, kIfListed, kYes };
  IsPart is_part = IsPart::kNo;
};

/// nullopt: the name has no such form.
///
/// The rules are: a word of a step or an epoch before the number makes it a step. So does one of a checkpoint, unless
/// an index lists parts. A word of a part makes it a part. Else a count that is written with zeros before it
/// ("00001-of-00003") makes it a part, for people who write a step with zeros write the number of steps without. There
/// are fewer than kMostParts such parts.
std::optional<NumberOf> number_of(std::string_view name);

inline constexpr std::int64_t kMostParts = 1'000;

}  // namespace base
