#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stacks {

/// What was told of one process of a rank.
enum class Kind { kPython, kNative, kKernel };

/// Where the main thread of a rank stands: its frames from the outermost to the innermost. Of kKernel there is one:
/// what the thread does, as the kernel tells it.
struct Place {
  Kind kind = Kind::kKernel;
  std::vector<std::string> frames;
  bool operator==(const Place&) const = default;
};

/// Reads the text of a rank (agent/protocol/stacks.h). The first process whose frames are known speaks for the rank,
/// and the first process of all where none is. A place without frames: the text makes no sense.
///
/// Frames of Python read "train_step (train.py:41)", those of muster-worker have no line.
Place place_of(std::string_view text);

}  // namespace stacks
