# Settings that every target of the project shares. fsdp/ includes this file too when it is built alone.
include_guard(GLOBAL)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# One folder for every program: musterd finds muster-worker and muster-supervisor beside itself.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
find_package(Threads REQUIRED)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# mold links the large LibTorch and gRPC binaries in a fraction of ld's time.
find_program(MUSTER_MOLD mold)
if(MUSTER_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

add_library(muster_flags INTERFACE)
target_compile_options(muster_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Werror
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict -Wno-maybe-uninitialized -Wno-dangling-pointer -Wno-stringop-overflow>)
if(MUSTER_SANITIZER)
  target_compile_options(muster_flags INTERFACE -fsanitize=${MUSTER_SANITIZER} -fno-omit-frame-pointer -g1)
  target_link_options(muster_flags INTERFACE -fsanitize=${MUSTER_SANITIZER})
  if(MUSTER_SANITIZER STREQUAL "address")
    target_compile_options(muster_flags INTERFACE -fsanitize=undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined)
    target_link_options(muster_flags INTERFACE -fsanitize=undefined)
  endif()
endif()

# muster_library(<name> SOURCES ... [DEPENDS ...]): a static library of one folder with the shared flags.
function(muster_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC ${ARG_DEPENDS} Threads::Threads PRIVATE $<BUILD_INTERFACE:muster_flags>)
endfunction()

# muster_test(<name> SOURCES ... DEPENDS ... [LABEL unit|system|slurm|peers|gpu] [TIMEOUT seconds] [SERIAL]):
# one GoogleTest program, each case a ctest of its own.
function(muster_test name)
  cmake_parse_arguments(ARG "SERIAL" "LABEL;TIMEOUT" "SOURCES;DEPENDS;ENVIRONMENT" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} GTest::gmock GTest::gtest GTest::gtest_main muster_flags)
  set(properties LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
  if(ARG_SERIAL)
    list(APPEND properties RUN_SERIAL TRUE)
  endif()
  if(ARG_ENVIRONMENT)
    list(APPEND properties ENVIRONMENT "${ARG_ENVIRONMENT}")
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120 PROPERTIES ${properties})
endfunction()
