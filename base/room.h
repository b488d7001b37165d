#pragma once

#include <cerrno>

namespace base {

/// Whether the process, or the machine, has no descriptor left.
inline bool lacks_descriptors(int error) {
  return error == EMFILE || error == ENFILE;
}

/// Whether a file could not be made or written for want of room or of descriptors. Both come back sooner or later, so
/// what needs them waits, and nothing is charged to any budget. A read-only folder, a broken disk or a lost mount may
/// never heal: these are told.
inline bool lacks_room(int error) {
  return error == ENOSPC || error == EDQUOT || lacks_descriptors(error);
}

}  // namespace base
