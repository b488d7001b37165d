# muster_tokenizers_crate: Hugging Face's crate tokenizers behind the C header data/tokenizers/crate/muster_tokenizers.h, as
# a static library that cargo builds from the crates of ./dev setup. Nothing is downloaded.
# All presets and worktrees share cargo's own build folder in the deps folder, so the crates are compiled once.
include_guard(GLOBAL)
include("${CMAKE_CURRENT_LIST_DIR}/Deps.cmake")

set(_crate "${PROJECT_SOURCE_DIR}/data/tokenizers/crate")
set(_archive "${CMAKE_BINARY_DIR}/data/tokenizers/libmuster_tokenizers.a")
set(_build "${PROJECT_SOURCE_DIR}/tools/build_tokenizers.sh")
add_custom_command(OUTPUT "${_archive}"
  COMMAND "${_build}" "${_crate}" "${MUSTER_DEPS}/crates" "${MUSTER_DEPS}/crates-build" "${_archive}"
  DEPENDS "${_build}" "${_crate}/Cargo.toml" "${_crate}/Cargo.lock" "${_crate}/src/lib.rs"
  COMMENT "Building the crate tokenizers (minutes the first time)" VERBATIM)
add_custom_target(muster_tokenizers DEPENDS "${_archive}")

add_library(muster_tokenizers_crate INTERFACE)
add_dependencies(muster_tokenizers_crate muster_tokenizers)
target_include_directories(muster_tokenizers_crate INTERFACE "${_crate}")
# Rust's standard library needs these of the C library.
target_link_libraries(muster_tokenizers_crate INTERFACE "${_archive}" Threads::Threads ${CMAKE_DL_LIBS} m)
