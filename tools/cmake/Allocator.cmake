# muster_allocator: the allocator of programs that train. A step makes and frees thousands of small objects, those of
# tensors and of autograd's graph. gperftools' tcmalloc takes less time for them than glibc's malloc, and it keeps the
# memory of freed activations for the next step without tuning; docs/decisions.md has the numbers.
# It comes first among a program's libraries, so that it also serves LibTorch. Sanitizers bring their own allocator.
include_guard(GLOBAL)

add_library(muster_allocator INTERFACE)
if(MUSTER_STATIC)
  find_library(MUSTER_TCMALLOC_ARCHIVE NAMES libtcmalloc_minimal.a REQUIRED)
  target_link_libraries(muster_allocator INTERFACE "$<LINK_LIBRARY:WHOLE_ARCHIVE,${MUSTER_TCMALLOC_ARCHIVE}>")
elseif(NOT MUSTER_SANITIZER)
  # The file's own name is found where only the library for running is installed.
  find_library(MUSTER_TCMALLOC NAMES tcmalloc_minimal libtcmalloc_minimal.so.4)
  if(NOT MUSTER_TCMALLOC)
    message(FATAL_ERROR "no libtcmalloc_minimal.so.4: run ./dev setup, or set MUSTER_TCMALLOC to the library's path")
  endif()
  target_link_options(muster_allocator INTERFACE "LINKER:--push-state,--no-as-needed" "${MUSTER_TCMALLOC}" "LINKER:--pop-state")
endif()
