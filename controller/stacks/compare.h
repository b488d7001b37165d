#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace stacks {

/// The kind of stack that was told of one process of a rank.
enum class Kind { kPython, kNative, kKernel };

/// Where the main thread of a rank stands: its frames from the outermost to the innermost. Of kKernel there is one:
/// what the thread does, as the kernel tells it.
struct Place {
  Kind kind = Kind::kKernel;
  std::vector<std::string> frames;
  bool operator==(const Place&) const = default;
};

/// Reads the text of a rank (agent/protocol/files.h). The first process whose frames are known speaks for the rank,
/// and the first process of all where none is. A place without frames: the text makes no sense.
///
/// Frames of Python read "train_step (train.py:41)", those of muster-worker have no line.
Place place_of(std::string_view text);

/// Ranks that stand at one place.
struct Group {
  std::vector<std::uint32_t> ranks;
  std::string parts_at;   // the first frame, from the outside, that is not the others'
  std::string innermost;  // of the first of these ranks
  bool operator==(const Group&) const = default;
};

/// Which ranks stand elsewhere than the others: the largest group first, and of equal ones that with the lowest rank.
///
/// Frames are compared from the outermost one on, and the ranks part where the first frame differs: a rank that loads
/// data parts from those that wait for its gradients in the training loop, whatever libraries stand below it. Where the
/// same frames go on in a loop of a library, the ranks part there, if they do. Frames of Python, frames of
/// muster-worker and what the kernel tells are never equal. No groups where no rank is known.
std::vector<Group> compare(const std::map<std::uint32_t, Place>& ranks);

/// The groups in one sentence: "rank 1 stands at load (data.py:7), the other 3 ranks at all_reduce (...)". Empty where
/// there are none.
std::string summary_of(const std::vector<Group>& groups);

}  // namespace stacks
