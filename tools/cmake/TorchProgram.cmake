# muster_torch_program(<name> SOURCES ... DEPENDS ...): a program that uses LibTorch.
#
# With MUSTER_STATIC it is for the wheel and the packages of the worker, where a starter gives it the LibTorch of the package torch beside it
# (worker/starter). So it has no search path. libstdc++ is LibTorch's, since exceptions pass between both. All other libraries
# are in the program, which shows the allocator alone: LibTorch carries protobuf and others of its own.
include_guard(GLOBAL)
include(Allocator)

function(muster_torch_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE muster_allocator ${ARG_DEPENDS} muster_flags)
  if(MUSTER_STATIC)
    target_sources(${name} PRIVATE "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../package/older_libstdcxx.cpp")
    set_target_properties(${name} PROPERTIES SKIP_BUILD_RPATH ON MUSTER_SHARED_LIBSTDCXX ON)
    # Conversions of half floats, which libgcc_s has since GCC 12 alone; the archive comes before it.
    target_link_libraries(${name} PRIVATE gcc)
    # A LibTorch that lacks a function is refused at the start, and not in the middle of a training.
    target_link_options(${name} PRIVATE "LINKER:--version-script=${CMAKE_CURRENT_FUNCTION_LIST_DIR}/allocator.map" "LINKER:-z,now")
  endif()
endfunction()
