#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

/// Why the file, or the folder with all below it, is a save that was cut off. Empty: nothing shows that.
///
/// The signs of a torn file:
/// - a zip archive without its end: torch.save, .npz, .keras
/// - a .safetensors file shorter than its header says
/// - a pickle without its STOP: .pkl, .joblib, and .pt of pickle.dump
/// - a file for weights that is empty
/// And of several files:
/// - a part that is missing: "model-00001-of-00003.safetensors", but not "step100-of-4000.pt"; see number_of()
/// - a folder with .distcp files (torch.distributed.checkpoint) without .metadata, which is written last
/// - one with an optimizer of the Trainer of transformers without trainer_state.json, which is written last
/// - no byte in any of them
///
/// Reads the head and the end of each file. At most `most` files are looked at; what is beyond them is taken for whole.
std::string why_torn(const std::string& path, std::size_t most = 5'000);

/// Why the save that consists of these files, by paths below `root`, was cut off. Empty: nothing shows that.
std::string why_torn(const std::filesystem::path& root, const std::vector<std::string>& files,
                     std::size_t most = 5'000);

}  // namespace base
