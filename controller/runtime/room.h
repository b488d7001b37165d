#pragma once

#include <cerrno>

namespace runtime {

/// Whether a file could not be written for want of room. Somebody makes room sooner or later, so a launch waits for it
/// and is charged to no budget. A read-only folder, a broken disk or a lost mount may never heal: these are told.
inline bool lacks_room(int error) {
  return error == ENOSPC || error == EDQUOT;
}

/// What people can do meanwhile.
inline constexpr const char* kMakeRoom = "Make room there: it starts by itself.";

}  // namespace runtime
