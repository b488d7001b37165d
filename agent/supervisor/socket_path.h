#pragma once

#include "os/fd.h"

namespace runtime::local {

// A unix socket's path is limited to 107 bytes, an attempt's folder is not: both ends go through
// /proc/self/fd/<folder>.

/// Listens on the folder's supervisor.sock, non-blocking, for this user alone; replaces a stale one. Throws
/// std::system_error.
Fd listen_in(int folder);

/// Connects to the folder's supervisor.sock, non-blocking. No descriptor (errno says why) if nobody listens.
Fd connect_in(int folder);

}  // namespace runtime::local
