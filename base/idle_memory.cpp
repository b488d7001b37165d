#include "base/idle_memory.h"

#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace base {
namespace {

/// Only segments that are never written: those that the loader relocates are copies, and have no file to come back
/// from.
int give_back_file(dl_phdr_info* file, std::size_t /*size*/, void* page_bytes) {
  const auto page = *static_cast<const std::uintptr_t*>(page_bytes);
  for (int i = 0; i < file->dlpi_phnum; ++i) {
    const auto& segment = file->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) != 0) continue;
    const std::uintptr_t at = file->dlpi_addr + segment.p_vaddr;
    const auto begin = (at + page - 1) / page * page, end = (at + segment.p_filesz) / page * page;
    if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  }
  return 0;
}

}  // namespace

void give_back_idle_memory() {
  ::malloc_trim(0);
  auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  ::dl_iterate_phdr(give_back_file, &page);
}

}  // namespace base
