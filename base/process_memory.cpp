#include "base/process_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace base {

ProcessMemory process_memory() {
  ProcessMemory out;
  if (std::FILE* file = std::fopen("/proc/self/statm", "re"); file != nullptr) {
    long long total = 0, resident = 0;
    if (std::fscanf(file, "%lld %lld", &total, &resident) == 2) out.resident_bytes = resident * ::sysconf(_SC_PAGESIZE);
    std::fclose(file);
  }
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) == 0) out.peak_bytes = std::int64_t{usage.ru_maxrss} * 1024;
  out.peak_bytes = std::max(out.peak_bytes, out.resident_bytes);
  return out;
}

}  // namespace base
