#pragma once

#include "base/fd.h"

namespace agent::supervisor {

// A unix socket's path is limited to 107 bytes, an attempt's folder is not: both ends go through
// /proc/self/fd/<folder>.

/// Listens on the folder's supervisor.sock, non-blocking, for this user alone; replaces a stale one. Throws
/// std::system_error.
base::Fd listen_in(int folder);

/// Connects to the folder's supervisor.sock, non-blocking. No descriptor (errno says why) if nobody listens.
base::Fd connect_in(int folder);

}  // namespace agent::supervisor
