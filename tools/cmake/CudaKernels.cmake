# muster_cuda_kernels(<target> <source.cu>...): compiles the sources by nvcc and adds them to the target, which gets the
# definition MUSTER_CUDA_KERNELS. Without an nvcc nothing happens, and the target takes its fallback.
# CMake's own language CUDA wants a whole toolkit. The wheels of tools/deps/nvcc.txt have the compiler alone.
include_guard(GLOBAL)

find_program(MUSTER_NVCC nvcc PATHS "${MUSTER_DEPS}/nvcc/nvidia/cu13/bin" "${MUSTER_CUDA_HEADERS}/nvidia/cu13/bin" /usr/local/cuda/bin NO_DEFAULT_PATH)
if(MUSTER_NVCC)
  message(STATUS "CUDA compiler: ${MUSTER_NVCC}")
else()
  message(STATUS "no nvcc: models on GPUs use LibTorch's own operations")
endif()

function(muster_cuda_kernels target)
  if(NOT MUSTER_NVCC)
    return()
  endif()
  foreach(_source IN LISTS ARGN)
    get_filename_component(_name "${_source}" NAME_WE)
    get_filename_component(_absolute "${_source}" ABSOLUTE)
    set(_object "${CMAKE_CURRENT_BINARY_DIR}/${_name}.cu.o")
    # Machine code for A100 and H100, and PTX for what comes after them.
    add_custom_command(OUTPUT "${_object}"
      COMMAND "${MUSTER_NVCC}" -std=c++17 -O3 -ccbin "${CMAKE_CXX_COMPILER}" -Xcompiler -fPIC
              -gencode arch=compute_80,code=sm_80 -gencode "arch=compute_90,code=[sm_90,compute_90]"
              -isystem "${MUSTER_CUDA_INCLUDE}" -isystem "${MUSTER_CUDA_INCLUDE}/cccl"
              -I "${PROJECT_SOURCE_DIR}" -MMD -MF "${_object}.d" -c "${_absolute}" -o "${_object}"
      DEPENDS "${_absolute}" DEPFILE "${_object}.d" VERBATIM)
    target_sources(${target} PRIVATE "${_object}")
  endforeach()
  target_compile_definitions(${target} PRIVATE MUSTER_CUDA_KERNELS)
  target_link_libraries(${target} PUBLIC libtorch::cuda)
endfunction()
