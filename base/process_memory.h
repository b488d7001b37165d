#pragma once

#include <cstdint>

namespace base {

/// This process's resident memory in bytes: now, and its peak.
struct ProcessMemory {
  std::int64_t resident_bytes = 0;
  std::int64_t peak_bytes = 0;
};

/// Zeros where the system does not report it.
ProcessMemory process_memory();

}  // namespace base
