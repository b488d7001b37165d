#pragma once

#include <cstdint>

namespace worker {

/// This process's resident memory in bytes, now and at its highest.
struct ProcessMemory {
  std::int64_t resident_bytes = 0;
  std::int64_t peak_bytes = 0;
};

/// Zeros where the system does not tell.
ProcessMemory process_memory();

}  // namespace worker
