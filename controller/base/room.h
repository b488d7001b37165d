#pragma once

#include "os/room.h"

namespace base {

/// What people can do about it meanwhile.
inline const char* make_room(int error) {
  return os::lacks_descriptors(error) ? "Raise musterd's limit of open files (LimitNOFILE, ulimit -n), or wait until "
                                        "other jobs have ended: it starts by itself."
                                      : "Make room there: it starts by itself.";
}

}  // namespace base
