# Builds the dashboard inside the build folder, so that the source stays clean and build folders do not meet.
# Sets MUSTER_WEB_EMBEDDED (the C++ file that holds the built dashboard) and MUSTER_WEB_FOLDER (sources, node_modules
# and tests as used by the build).
find_program(MUSTER_NODE NAMES node nodejs REQUIRED)
find_program(MUSTER_NPM npm REQUIRED)
set(_web "${CMAKE_CURRENT_LIST_DIR}")
set(MUSTER_WEB_FOLDER "${CMAKE_BINARY_DIR}/web")
set(MUSTER_WEB_EMBEDDED "${MUSTER_WEB_FOLDER}/embedded.cpp")

# Only a changed lock file installs again. No package may run a script of its own. What npm says of its success ("added 7
# packages") goes into npm.log; its errors are seen.
add_custom_command(OUTPUT "${MUSTER_WEB_FOLDER}/node_modules/.package-lock.json"
  COMMAND ${CMAKE_COMMAND} -E make_directory "${MUSTER_WEB_FOLDER}"
  COMMAND ${CMAKE_COMMAND} -E copy "${_web}/package.json" "${_web}/package-lock.json" "${MUSTER_WEB_FOLDER}"
  COMMAND sh -c "cd \"$0\" && exec \"$@\" > npm.log" "${MUSTER_WEB_FOLDER}" ${MUSTER_NPM} ci --ignore-scripts --no-audit --no-fund --loglevel=error
  COMMAND ${CMAKE_COMMAND} -E touch "${MUSTER_WEB_FOLDER}/node_modules/.package-lock.json"
  DEPENDS "${_web}/package.json" "${_web}/package-lock.json"
  COMMENT "Installing the dashboard's build tools (npm ci)" VERBATIM)

file(GLOB_RECURSE _sources CONFIGURE_DEPENDS "${_web}/src/*")
add_custom_command(OUTPUT "${MUSTER_WEB_EMBEDDED}"
  COMMAND ${CMAKE_COMMAND} -E remove_directory "${MUSTER_WEB_FOLDER}/src"
  COMMAND ${CMAKE_COMMAND} -E copy_directory "${_web}/src" "${MUSTER_WEB_FOLDER}/src"
  COMMAND ${CMAKE_COMMAND} -E copy "${_web}/build.mjs" "${_web}/tsconfig.json" "${MUSTER_WEB_FOLDER}"
  COMMAND ${CMAKE_COMMAND} -E chdir "${MUSTER_WEB_FOLDER}" ${MUSTER_NODE} build.mjs
  COMMAND ${CMAKE_COMMAND} "-DFOLDER=${MUSTER_WEB_FOLDER}/dist" "-DOUTPUT=${MUSTER_WEB_EMBEDDED}" -P "${_web}/embed.cmake"
  DEPENDS ${_sources} "${_web}/build.mjs" "${_web}/tsconfig.json" "${_web}/embed.cmake"
          "${MUSTER_WEB_FOLDER}/node_modules/.package-lock.json"
  COMMENT "Building the dashboard" VERBATIM)
