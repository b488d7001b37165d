# MUSTER_DEPS: where ./dev setup puts downloads.
include_guard(GLOBAL)

set(_deps "$ENV{MUSTER_DEPS_FOLDER}")
if(NOT _deps)
  get_filename_component(_deps "${CMAKE_CURRENT_LIST_DIR}/../../.deps" ABSOLUTE)
endif()
set(MUSTER_DEPS "${_deps}" CACHE INTERNAL "Where ./dev setup puts downloads")
