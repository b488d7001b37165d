# The engine as a CMake package: `cmake --install` of a build of fsdp/, and `--component fsdp` of any build, gives programs
# of other projects find_package(fsdp) and the target fsdp::fsdp.
include_guard(GLOBAL)
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

# The headers that users include, and below them those that they include in turn.
set(_public fsdp/comm/device_mesh.h fsdp/comm/transport.h fsdp/engine/dry_run.h fsdp/engine/fully_shard.h
  fsdp/engine/initialize.h fsdp/engine/recompute.h fsdp/engine/wrap.h fsdp/files/checkpoint.h fsdp/files/export.h
  fsdp/files/tensor_files.h fsdp/optim/adafactor.h fsdp/optim/average.h fsdp/optim/grad_scaler.h fsdp/optim/muon.h
  fsdp/optim/optimizers.h fsdp/optim/step_graph.h fsdp/tracing/trace.h
  base/fd.h fsdp/comm/communicator.h fsdp/engine/layout.h fsdp/engine/packing.h fsdp/engine/segment.h fsdp/engine/unit.h fsdp/files/safetensors.h
  fsdp/memory/storage.h fsdp/optim/moments.h fsdp/text/json.h)
set(_include "${CMAKE_INSTALL_INCLUDEDIR}/muster-fsdp")
set(_package "${CMAKE_INSTALL_LIBDIR}/cmake/fsdp")
set(_options COMPONENT fsdp)
if(NOT PROJECT_IS_TOP_LEVEL)
  list(APPEND _options EXCLUDE_FROM_ALL)  # whoever installs muster need not have the engine
endif()

# The project's version stands in the CMakeLists.txt above.
cmake_path(SET _repository NORMALIZE "${CMAKE_CURRENT_LIST_DIR}/../..")
file(STRINGS "${_repository}/CMakeLists.txt" _version REGEX "^project[(]muster VERSION ")
string(REGEX REPLACE "^project[(]muster VERSION ([0-9.]+).*" "\\1" _version "${_version}")

target_compile_features(fsdp INTERFACE cxx_std_20)
install(TARGETS fsdp fsdp_json base EXPORT fsdp
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}/muster-fsdp" ${_options} INCLUDES DESTINATION "${_include}")
install(EXPORT fsdp NAMESPACE fsdp:: FILE fsdp-targets.cmake DESTINATION "${_package}" ${_options})
foreach(_header IN LISTS _public)
  cmake_path(GET _header PARENT_PATH _folder)
  install(FILES "${_repository}/${_header}" DESTINATION "${_include}/${_folder}" ${_options})
endforeach()
configure_file("${CMAKE_CURRENT_LIST_DIR}/fsdp-config.cmake.in" "${CMAKE_CURRENT_BINARY_DIR}/fsdp-config.cmake" @ONLY)
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/fsdp-config-version.cmake" VERSION "${_version}"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/fsdp-config.cmake" "${CMAKE_CURRENT_BINARY_DIR}/fsdp-config-version.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/LibTorchTargets.cmake" DESTINATION "${_package}" ${_options})
