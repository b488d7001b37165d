# fsdp_json: the engine's JSON as a library of its own, over nlohmann's headers, which its own header does not include. The engine links it, and so do parts that
# a build without LibTorch has, too.
include_guard(GLOBAL)

cmake_path(SET fsdp_folder NORMALIZE "${CMAKE_CURRENT_LIST_DIR}/../../fsdp")
find_package(nlohmann_json REQUIRED)
muster_library(fsdp_json SOURCES "${fsdp_folder}/text/json.cpp" DEPENDS $<BUILD_INTERFACE:nlohmann_json::nlohmann_json>)
