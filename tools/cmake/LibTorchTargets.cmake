# LibTorch as imported targets, for the build of this project (LibTorch.cmake) and for programs that use the installed
# engine (fsdp-config.cmake). The wheel's own find_package(Torch) needs a CUDA toolkit; these targets do not.
#   libtorch::headers   the headers
#   libtorch::cpu       headers, libtorch_cpu and libc10
#   libtorch::cuda      also libtorch_cuda and libc10_cuda (only with CUDA)
#
# A function that fails sets the variable `muster_problem` of its caller to a text for people.
include_guard(GLOBAL)

set(MUSTER_LIBTORCH "$ENV{MUSTER_LIBTORCH}" CACHE PATH "LibTorch's folder, the one that holds include/ and lib/")

# muster_find_libtorch(<variable> [fallback]): the folder that MUSTER_LIBTORCH names. Without that name: the fallback, where
# LibTorch is in it, else the package torch of the first python3 in PATH.
function(muster_find_libtorch variable)
  set(folder "${MUSTER_LIBTORCH}")
  if(NOT folder AND ARGN AND EXISTS "${ARGN}/lib/libtorch_cpu.so")
    set(folder "${ARGN}")
  elseif(NOT folder)
    execute_process(COMMAND python3 -c "import importlib.util as u; print(*u.find_spec('torch').submodule_search_locations)"
                    OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  set(${variable} "${folder}" PARENT_SCOPE)
  set(remedy "point MUSTER_LIBTORCH at a folder with include/ and lib/")
  if(NOT folder)
    set(muster_problem "no LibTorch: MUSTER_LIBTORCH is not set, and the python3 in PATH has no package torch: ${remedy}" PARENT_SCOPE)
  elseif(NOT EXISTS "${folder}/lib/libtorch_cpu.so")
    set(muster_problem "no LibTorch in ${folder}: ${remedy}" PARENT_SCOPE)
  endif()
endfunction()

# muster_libtorch_version(<variable> <folder>): "2.11.0", as the headers in the folder say.
function(muster_libtorch_version variable folder)
  set(numbers "")
  foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)  # since 2.10, and before
    if(NOT numbers AND EXISTS "${folder}/include/${header}")
      file(STRINGS "${folder}/include/${header}" numbers REGEX "^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]+$")
    endif()
  endforeach()
  list(TRANSFORM numbers REPLACE ".* " "")
  list(JOIN numbers "." version)
  set(${variable} "${version}" PARENT_SCOPE)
  if(NOT version)
    set(muster_problem "no version of LibTorch in ${folder}/include: point MUSTER_LIBTORCH at a whole LibTorch" PARENT_SCOPE)
  endif()
endfunction()

# muster_libtorch_targets(<folder> [wheels]): makes the targets; libtorch::cuda where the folder of CUDA's wheels is given,
# which MUSTER_CUDA_HEADERS replaces.
function(muster_libtorch_targets folder)
  if(TARGET libtorch::headers)
    return()
  endif()
  add_library(libtorch::headers INTERFACE IMPORTED GLOBAL)
  # -isystem hides the warnings of LibTorch's headers.
  target_include_directories(libtorch::headers SYSTEM INTERFACE "${folder}/include" "${folder}/include/torch/csrc/api/include")

  add_library(libtorch::cpu INTERFACE IMPORTED GLOBAL)
  target_link_libraries(libtorch::cpu INTERFACE libtorch::headers "${folder}/lib/libtorch_cpu.so" "${folder}/lib/libc10.so")
  # A program of the wheel is told by its starter where LibTorch is (TorchProgram.cmake).
  if(NOT MUSTER_STATIC)
    target_link_options(libtorch::cpu INTERFACE "LINKER:-rpath,${folder}/lib")
  endif()
  # The wheel finds cupti and cudart next to itself through its own RPATH. The linker does not follow that RPATH.
  target_link_options(libtorch::cpu INTERFACE "LINKER:--allow-shlib-undefined")
  if(NOT ARGN)
    return()
  endif()

  # No CUDA toolkit is needed. The wheels of tools/deps/cuda.txt have the headers, and the libraries that LibTorch's CUDA side
  # links.
  set(MUSTER_CUDA_HEADERS "${ARGN}" CACHE PATH "Folder of the unpacked wheels, the one that holds nvidia/")
  find_path(MUSTER_CUDA_INCLUDE cuda_runtime_api.h PATHS "${MUSTER_CUDA_HEADERS}/nvidia/cu13/include" /usr/local/cuda/include
            NO_DEFAULT_PATH)
  find_path(MUSTER_NCCL_INCLUDE nccl.h PATHS "${MUSTER_CUDA_HEADERS}/nvidia/nccl/include" /usr/include NO_DEFAULT_PATH)
  # Functions within LibTorch's headers call the CUDA runtime.
  find_library(MUSTER_CUDART NAMES libcudart.so.13 cudart PATHS "${MUSTER_CUDA_HEADERS}/nvidia/cu13/lib" /usr/local/cuda/lib64
               NO_DEFAULT_PATH)
  if(NOT MUSTER_CUDA_INCLUDE OR NOT MUSTER_NCCL_INCLUDE OR NOT MUSTER_CUDART)
    set(muster_problem "no cuda_runtime_api.h, nccl.h or libcudart.so.13 in ${MUSTER_CUDA_HEADERS}: set MUSTER_CUDA_HEADERS to where \
the wheels of tools/deps/cuda.txt are (./dev build --preset cuda fetches them)" PARENT_SCOPE)
    return()
  endif()
  add_library(libtorch::cuda INTERFACE IMPORTED GLOBAL)
  target_link_libraries(libtorch::cuda INTERFACE libtorch::cpu "${MUSTER_CUDART}")
  target_include_directories(libtorch::cuda SYSTEM INTERFACE "${MUSTER_CUDA_INCLUDE}" "${MUSTER_NCCL_INCLUDE}")
  target_compile_definitions(libtorch::cuda INTERFACE USE_C10D_NCCL)
  # LibTorch registers its CUDA side when libtorch_cuda is loaded, so the linker must not drop it as unused.
  target_link_options(libtorch::cuda INTERFACE "LINKER:--push-state,--no-as-needed"
                      "${folder}/lib/libtorch_cuda.so" "${folder}/lib/libc10_cuda.so" "LINKER:--pop-state")
  # LibTorch looks for CUDA's libraries next to itself, but they lie elsewhere. Of a program's search paths only the old
  # kind, DT_RPATH, also applies to the libraries of its libraries.
  target_link_options(libtorch::cuda INTERFACE "LINKER:--disable-new-dtags")
  if(MUSTER_STATIC)
    return()
  endif()
  foreach(part cu13 cudnn nccl cusparselt nvshmem)
    target_link_options(libtorch::cuda INTERFACE "LINKER:-rpath,${MUSTER_CUDA_HEADERS}/nvidia/${part}/lib")
  endforeach()
endfunction()
