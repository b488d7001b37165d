#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace agent::watch {

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
