// Functions that glibc has only since 2.35 and 2.36, and that our libraries ask for because they were compiled with such a
// glibc. MUSTER_STATIC links these in their place, so programs run with glibc 2.34.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

struct Search {
  uintptr_t address;
  struct dl_find_object* found;
};

static int look(struct dl_phdr_info* object, size_t size, void* data) {
  (void)size;
  struct Search* const search = data;
  uintptr_t begin = UINTPTR_MAX, end = 0, frames = 0;
  int has_it = 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)* const part = &object->dlpi_phdr[i];
    const uintptr_t from = object->dlpi_addr + part->p_vaddr, to = from + part->p_memsz;
    if (part->p_type == PT_GNU_EH_FRAME) frames = from;
    if (part->p_type != PT_LOAD) continue;
    if (from < begin) begin = from;
    if (to > end) end = to;
    if (from <= search->address && search->address < to) has_it = 1;
  }
  if (!has_it) return 0;
  search->found->dlfo_map_start = (void*)begin;
  search->found->dlfo_map_end = (void*)end;
  search->found->dlfo_eh_frame = (void*)frames;
  return frames != 0 ? 1 : -1;
}

/// Finds the table of an object's stack frames, as libgcc asks when an exception is thrown. 0: found.
int _dl_find_object(void* address, struct dl_find_object* result) {
  *result = (struct dl_find_object){0};
  struct Search search = {(uintptr_t)address, result};
  return dl_iterate_phdr(look, &search) == 1 ? 0 : -1;
}

/// 32 bits from the kernel.
uint32_t arc4random(void) {
  uint32_t bits = 0;
  while (getrandom(&bits, sizeof bits, 0) != (ssize_t)sizeof bits) {
    if (errno != EINTR) abort();
  }
  return bits;
}

int pidfd_open(pid_t pid, unsigned flags) {
  return (int)syscall(SYS_pidfd_open, pid, flags);
}

int pidfd_send_signal(int process, int signal, siginfo_t* info, unsigned flags) {
  return (int)syscall(SYS_pidfd_send_signal, process, signal, info, flags);
}
