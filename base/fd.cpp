#include "base/fd.h"

#include <sys/resource.h>

#include <algorithm>

namespace base {

OpenFiles open_files_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return {limit.rlim_cur, limit.rlim_max};
}

OpenFiles raise_open_files_limit() {
  const auto before = open_files_limit();
  const rlimit raised{before.hard, before.hard};
  ::setrlimit(RLIMIT_NOFILE, &raised);
  return before;
}

void set_open_files(std::uint64_t soft) {
  rlimit limit{};
  if (soft == 0 || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::min<rlim_t>(soft, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace base
