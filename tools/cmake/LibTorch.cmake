# Imported targets for the LibTorch wheel. The wheel's own find_package(Torch) needs a CUDA toolkit; these targets do
# not.
#   libtorch::headers   the headers
#   libtorch::cpu       headers, libtorch_cpu and libc10
#   libtorch::cuda      also libtorch_cuda and libc10_cuda (only with MUSTER_WITH_CUDA)
include_guard(GLOBAL)
include("${CMAKE_CURRENT_LIST_DIR}/Deps.cmake")

set(MUSTER_LIBTORCH "$ENV{MUSTER_LIBTORCH}" CACHE PATH "LibTorch's folder, the one that holds include/ and lib/")
if(NOT MUSTER_LIBTORCH)
  set(_torch "${MUSTER_DEPS}/libtorch-2.11.0/torch")
else()
  set(_torch "${MUSTER_LIBTORCH}")
endif()
if(NOT EXISTS "${_torch}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "no LibTorch in ${_torch}: run ./dev setup, or point MUSTER_LIBTORCH at a folder with include/ and lib/")
endif()
message(STATUS "LibTorch: ${_torch}")
set(MUSTER_LIBTORCH_DIR "${_torch}" CACHE INTERNAL "")

add_library(libtorch_headers INTERFACE)
add_library(libtorch::headers ALIAS libtorch_headers)
# -isystem hides the warnings of LibTorch's headers.
target_include_directories(libtorch_headers SYSTEM INTERFACE "${_torch}/include" "${_torch}/include/torch/csrc/api/include")

add_library(libtorch_cpu_import INTERFACE)
add_library(libtorch::cpu ALIAS libtorch_cpu_import)
target_link_libraries(libtorch_cpu_import INTERFACE libtorch_headers "${_torch}/lib/libtorch_cpu.so" "${_torch}/lib/libc10.so")
target_link_options(libtorch_cpu_import INTERFACE "LINKER:-rpath,${_torch}/lib")
# The wheel finds cupti and cudart next to itself through its own RPATH. The linker does not follow that RPATH.
target_link_options(libtorch_cpu_import INTERFACE "LINKER:--allow-shlib-undefined")

if(MUSTER_WITH_CUDA)
  # No CUDA toolkit is needed. The wheels of tools/deps/cuda.txt have the headers, and the libraries that LibTorch's CUDA side
  # links.
  set(MUSTER_CUDA_HEADERS "${MUSTER_DEPS}/cuda" CACHE PATH "Folder of the unpacked wheels, the one that holds nvidia/")
  find_path(MUSTER_CUDA_INCLUDE cuda_runtime_api.h PATHS "${MUSTER_CUDA_HEADERS}/nvidia/cu13/include" /usr/local/cuda/include
            NO_DEFAULT_PATH)
  find_path(MUSTER_NCCL_INCLUDE nccl.h PATHS "${MUSTER_CUDA_HEADERS}/nvidia/nccl/include" /usr/include NO_DEFAULT_PATH)
  if(NOT MUSTER_CUDA_INCLUDE OR NOT MUSTER_NCCL_INCLUDE)
    message(FATAL_ERROR "MUSTER_WITH_CUDA: no cuda_runtime_api.h or nccl.h in ${MUSTER_CUDA_HEADERS}: run "
                        "./dev build --preset cuda, or set MUSTER_CUDA_HEADERS to where the wheels of tools/deps/cuda.txt are")
  endif()
  add_library(libtorch_cuda_import INTERFACE)
  add_library(libtorch::cuda ALIAS libtorch_cuda_import)
  # Functions within LibTorch's headers call the CUDA runtime.
  find_library(MUSTER_CUDART NAMES libcudart.so.13 cudart PATHS "${MUSTER_CUDA_HEADERS}/nvidia/cu13/lib" /usr/local/cuda/lib64
               NO_DEFAULT_PATH)
  if(NOT MUSTER_CUDART)
    message(FATAL_ERROR "MUSTER_WITH_CUDA: no libcudart.so.13 in ${MUSTER_CUDA_HEADERS}: run ./dev build --preset cuda, or "
                        "set MUSTER_CUDART to the library's path")
  endif()
  target_link_libraries(libtorch_cuda_import INTERFACE libtorch_cpu_import "${MUSTER_CUDART}")
  target_include_directories(libtorch_cuda_import SYSTEM INTERFACE "${MUSTER_CUDA_INCLUDE}"
                             "${MUSTER_NCCL_INCLUDE}")
  target_compile_definitions(libtorch_cuda_import INTERFACE USE_C10D_NCCL)
  # LibTorch registers its CUDA side when libtorch_cuda is loaded, so the linker must not drop it as unused.
  target_link_options(libtorch_cuda_import INTERFACE "LINKER:--push-state,--no-as-needed"
                      "${_torch}/lib/libtorch_cuda.so" "${_torch}/lib/libc10_cuda.so" "LINKER:--pop-state")
  # LibTorch looks for CUDA's libraries next to itself, but they lie elsewhere. Of a program's search paths only the old
  # kind, DT_RPATH, also applies to the libraries of its libraries.
  target_link_options(libtorch_cuda_import INTERFACE "LINKER:--disable-new-dtags")
  foreach(_part cu13 cudnn nccl cusparselt nvshmem)
    target_link_options(libtorch_cuda_import INTERFACE "LINKER:-rpath,${MUSTER_CUDA_HEADERS}/nvidia/${_part}/lib")
  endforeach()
endif()

# muster_torch_headers(<target> [TESTS]): the files of the target take LibTorch's headers from a precompiled one. Without
# it, half of the time of each file goes into reading them again. All targets share two, one with the flags of tests.
# The stand-alone preset tidy reads each header where it is included, so that a missing include is seen.
function(muster_torch_headers target)
  if(NOT MUSTER_UNITY)
    return()
  endif()
  set(_name muster_torch_headers)
  set(_links libtorch::headers Threads::Threads muster_flags)
  set(_options "")
  set(_more "")
  if("TESTS" IN_LIST ARGN)
    set(_name muster_torch_test_headers)
    set(_links libtorch::headers Threads::Threads muster_test_flags GTest::gmock GTest::gtest)
    set(_options -pthread)  # as some libraries of tests want it
    set(_more <gmock/gmock.h> <gtest/gtest.h>)
  endif()
  if(NOT TARGET ${_name})
    set(_source "${CMAKE_BINARY_DIR}/${_name}.cpp")
    file(CONFIGURE OUTPUT "${_source}" CONTENT "// Its target has the precompiled header.\n")
    add_library(${_name} OBJECT "${_source}")
    target_link_libraries(${_name} PRIVATE ${_links})
    target_compile_options(${_name} PRIVATE ${_options})
    target_precompile_headers(${_name} PRIVATE <ATen/ATen.h> <ATen/Parallel.h> <torch/csrc/autograd/autograd.h>
      <torch/csrc/autograd/custom_function.h> <torch/csrc/distributed/c10d/Store.hpp> <torch/nn/module.h> <algorithm>
      <atomic> <chrono> <filesystem> <fstream> <functional> <map> <memory> <sstream> <string> <thread> ${_more})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${_name})
  # GCC takes the header only with the flags and macros that it was compiled with. Programs would have -fPIE.
  target_link_libraries(${target} PRIVATE ${_links})
  target_compile_options(${target} PRIVATE ${_options})
  get_target_property(_type ${target} TYPE)
  if(_type STREQUAL "EXECUTABLE")
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
endfunction()
