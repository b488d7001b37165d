# muster_version(<program>): the program's main file may include muster_version.h, which has MUSTER_VERSION_TEXT: "0.1.0
# (1a1e0180ab12)", the version with the commit of the sources, and "0.1.0" where there is no repository. Main files alone
# include it, so a new commit compiles nothing else.
include_guard(GLOBAL)

set(_folder "${CMAKE_BINARY_DIR}/version")
add_custom_target(muster_version_header BYPRODUCTS "${_folder}/muster_version.h"
  COMMAND ${CMAKE_COMMAND} "-DSOURCE=${PROJECT_SOURCE_DIR}" "-DVERSION=${PROJECT_VERSION}" "-DOUTPUT=${_folder}/muster_version.h"
          -P "${CMAKE_CURRENT_LIST_DIR}/write_version.cmake" VERBATIM)

function(muster_version program)
  add_dependencies(${program} muster_version_header)
  target_include_directories(${program} PRIVATE "${CMAKE_BINARY_DIR}/version")
endfunction()
