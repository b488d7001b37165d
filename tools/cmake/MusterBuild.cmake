# Settings that every target of the project shares. A stand-alone build of fsdp/ includes this file too.
include_guard(GLOBAL)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# All programs go into one folder, because musterd looks for muster-worker and muster-agent next to itself.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
find_package(Threads REQUIRED)
get_filename_component(_repository "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
include("${CMAKE_CURRENT_LIST_DIR}/Deps.cmake")
# Tests read it when they run (tests/places.h). An absolute path in a macro would make the compiler's cache miss in each
# clone.
file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/test_places" CONTENT "source=${_repository}\ndeps=${MUSTER_DEPS}\n")

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
# Large headers fill the compiler's memory with data that stays. GCC therefore collects garbage only from half a GiB on,
# which saves a tenth of the build time.
target_compile_options(muster_flags INTERFACE "$<$<CXX_COMPILER_ID:GNU>:SHELL:--param ggc-min-heapsize=524288>")
# Macros such as GoogleTest's and LibTorch's write the file's path into the code. A path that begins in the repository is
# the same in every clone, so the compiler cache serves all clones.
target_compile_options(muster_flags INTERFACE "-fmacro-prefix-map=${_repository}/=")
# An include is a path in the repository.
target_include_directories(muster_flags INTERFACE "${_repository}")
if(MUSTER_SANITIZER)
  target_compile_options(muster_flags INTERFACE -fsanitize=${MUSTER_SANITIZER} -fno-omit-frame-pointer -g1)
  target_link_options(muster_flags INTERFACE -fsanitize=${MUSTER_SANITIZER})
  if(MUSTER_SANITIZER STREQUAL "address")
    target_compile_options(muster_flags INTERFACE -fsanitize=undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined)
    target_link_options(muster_flags INTERFACE -fsanitize=undefined)
  elseif(MUSTER_SANITIZER STREQUAL "thread")
    # What the installed libraries need: a header before every file, and an object file in every program.
    set(MUSTER_SANITIZER_INCLUDE "SHELL:-include ${CMAKE_CURRENT_LIST_DIR}/../../tests/tsan/every_file.h")
    target_compile_options(muster_flags INTERFACE ${MUSTER_SANITIZER_INCLUDE})
    add_library(muster_tsan OBJECT "${CMAKE_CURRENT_LIST_DIR}/../../tests/tsan/every_program.cpp")
    target_link_libraries(muster_flags INTERFACE $<TARGET_OBJECTS:muster_tsan> ${CMAKE_DL_LIBS})
  endif()
endif()

# Tests spend their run time in the product's code. Their own code is compiled without optimisation, which builds
# fastest.
add_library(muster_test_flags INTERFACE)
target_link_libraries(muster_test_flags INTERFACE muster_flags)
target_compile_options(muster_test_flags INTERFACE -O0)

# Unity builds compile several files at once, because the files read the same large headers. This halves the time of a
# full build. The tidy preset compiles each file alone, so that clang-tidy sees a missing include. CMake's own unity builds
# include by absolute paths, which are others in each clone, so the compiler's cache has to preprocess them. Those of this
# function include by the path in the repository.
option(MUSTER_UNITY "Compile several source files of a part at once, and LibTorch's headers once for all" OFF)
function(muster_unity target files alone)
  if(NOT MUSTER_UNITY OR NOT files)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  get_filename_component(repository "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../.." ABSOLUTE)
  set(kept "")
  set(text "")
  set(joined 0)
  set(unit 0)
  foreach(source IN LISTS sources ITEMS "")
    if(NOT source STREQUAL "")
      cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE OUTPUT_VARIABLE path)
      cmake_path(IS_PREFIX repository "${path}" is_ours)
      cmake_path(IS_PREFIX CMAKE_BINARY_DIR "${path}" is_built)
      if(source IN_LIST alone OR is_built OR NOT is_ours)
        list(APPEND kept "${source}")
        continue()
      endif()
      cmake_path(RELATIVE_PATH path BASE_DIRECTORY "${repository}")
      string(APPEND text "#include \"${path}\"\n")
      math(EXPR joined "${joined} + 1")
    endif()
    if(text AND (joined EQUAL files OR source STREQUAL ""))
      set(made "${CMAKE_CURRENT_BINARY_DIR}/${target}/Unity/unity_${unit}.cpp")
      file(CONFIGURE OUTPUT "${made}" CONTENT "${text}" @ONLY)
      list(APPEND kept "${made}")
      math(EXPR unit "${unit} + 1")
      set(text "")
      set(joined 0)
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES SOURCES "${kept}")
endfunction()

# muster_library(<name> SOURCES ... [DEPENDS ...] [UNITY files] [ALONE ...] [TORCH]): a static library of one folder with the
# shared flags. ALONE: sources that are compiled each by itself. TORCH: its files read LibTorch's headers, which are compiled once for all (muster_torch_headers of LibTorch.cmake).
function(muster_library name)
  cmake_parse_arguments(ARG "TORCH" "UNITY" "SOURCES;DEPENDS;ALONE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC ${ARG_DEPENDS} Threads::Threads PRIVATE $<BUILD_INTERFACE:muster_flags>)
  muster_unity(${name} "${ARG_UNITY}" "${ARG_ALONE}")
  if(ARG_TORCH)
    muster_torch_headers(${name})
  endif()
endfunction()

# muster_lane(<variable> <lane>): the properties of long tests that mostly wait. One test of a lane runs at a time,
# beside those of other lanes and unit tests. tools/testing/schedule.py starts the longest lane first.
function(muster_lane variable lane)
  set(${variable} RESOURCE_LOCK ${lane} PARENT_SCOPE)
endfunction()

# Put this before the command of a test whose processes start other processes. The guard ends all that are left when the
# test ends.
set(MUSTER_GUARD python3 -B "${CMAKE_CURRENT_LIST_DIR}/../../tests/guard.py")

# muster_long(<test>...): these tests run with `./dev test -L long` alone.
function(muster_long)
  set_property(TEST ${ARGN} APPEND PROPERTY LABELS long)
endfunction()

# muster_test(<name> SOURCES ... DEPENDS ... [LABEL unit|system|slurm|peers|gpu] [TIMEOUT seconds] [SERIAL] [LANE lane]
# [UNITY files] [ALONE ...] [TORCH] [APART] [LONG filter]):
# one GoogleTest program, with each case as a test of its own. tools/testing/run.py runs unit cases of a program in few
# processes; APART: each in one of its own. A system test runs below tests/guard.py. SERIAL: nothing else runs beside
# the test. TIMEOUT counts for each case. LONG: the cases of this filter run with `./dev test -L long` alone. ALONE and
# TORCH: as of muster_library.
function(muster_test name)
  cmake_parse_arguments(ARG "SERIAL;APART;TORCH" "LABEL;TIMEOUT;LANE;UNITY;LONG" "SOURCES;DEPENDS;ENVIRONMENT;ALONE" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 180)
  endif()
  if(MUSTER_SANITIZER STREQUAL "thread")
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 10")
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} GTest::gmock GTest::gtest GTest::gtest_main muster_test_flags)
  muster_unity(${name} "${ARG_UNITY}" "${ARG_ALONE}")
  if(ARG_TORCH)
    muster_torch_headers(${name} TESTS)
  endif()
  set(properties TIMEOUT ${ARG_TIMEOUT})
  if(ARG_SERIAL)
    list(APPEND properties RUN_SERIAL TRUE)
  endif()
  if(ARG_LANE)
    muster_lane(lane ${ARG_LANE})
    list(APPEND properties ${lane})
  endif()
  if(ARG_ENVIRONMENT)
    list(APPEND properties ENVIRONMENT "${ARG_ENVIRONMENT}")
  endif()
  if(ARG_LABEL STREQUAL "system")
    set_target_properties(${name} PROPERTIES CROSSCOMPILING_EMULATOR "${MUSTER_GUARD}")
  endif()
  set(labels ${ARG_LABEL})
  if(ARG_APART)
    list(APPEND labels apart)
  endif()
  set(others "")
  if(ARG_LONG)
    muster_cases(${name} "${ARG_LONG}" "${labels};long" "${properties}")
    set(others "-${ARG_LONG}")
  endif()
  muster_cases(${name} "${others}" "${labels}" "${properties}")
endfunction()

# Adds the cases of a program that pass the filter.
function(muster_cases name filter labels properties)
  # gtest_discover_tests does not pass on a list as the value of a property. tools/testing/listing.py splits the words.
  list(JOIN labels " " labels)
  set(list "${name}_TESTS")
  if(filter)
    string(MAKE_C_IDENTIFIER "${name}_${filter}_TESTS" list)
  endif()
  # Instances of a parameterised test are named by number. Values without a text of their own would be printed as bytes,
  # which differ in each run.
  gtest_discover_tests(${name} TEST_FILTER "${filter}" TEST_LIST ${list} NO_PRETTY_VALUES DISCOVERY_MODE PRE_TEST
                       DISCOVERY_TIMEOUT 120 PROPERTIES LABELS "${labels}" ${properties})
endfunction()
