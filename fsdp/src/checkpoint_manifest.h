#pragma once
// What a checkpoint's manifest says of its parts.
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/checkpoint.h"

namespace fsdp {

/// One rank's saved part of a tensor: elements [begin, begin + length) of the flattened tensor.
struct SavedSlice {
  int rank;
  std::int64_t begin;
  std::int64_t length;
};

struct SavedTensor {
  std::vector<std::int64_t> shape;
  bool trainable = true;   // the optimizer has states of it
  std::int64_t steps = 0;  // optimizer updates of this tensor
  std::vector<SavedSlice> slices;
};

struct SavedOptimizer {
  std::string name;
  std::int64_t steps = 0;
  std::vector<std::string> states;
};

struct SavedPart {
  /// Of the part's keys in the files of ranks: "model/", or "" in version 1.
  std::string prefix;
  std::optional<SavedOptimizer> optimizer;
  std::map<std::string, SavedTensor> tensors;
};

/// The parts by name. Throws CheckpointError or JsonError for a manifest that no load could follow. Reads versions 1
/// and 2. Version 1 holds the one part "model", with AdamW.
std::map<std::string, SavedPart> parse_parts(const Json& manifest);

/// The manifest without its list of files. `attempt` is the one that writes.
Json make_manifest(const std::vector<CheckpointPart>& parts, const CheckpointState& state, std::int64_t attempt);

/// Reads the manifest of a checkpoint and compares the sizes of its files. Throws for one that is not whole.
CheckpointInfo inspect(const std::filesystem::path& path, std::int64_t step);

}  // namespace fsdp
