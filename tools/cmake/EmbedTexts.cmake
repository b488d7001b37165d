# embed_texts(<target> <header> <namespace> FILES file...): a header with the texts of files as raw strings, which is
# made anew when one of them changes: kTexts, an array of {name, text}, where the name is the path below FOLDER.
function(embed_texts target header)
  cmake_parse_arguments(ARG "" "FOLDER;NAMESPACE" "FILES" ${ARGN})
  set(out "${CMAKE_CURRENT_BINARY_DIR}/embedded/${header}")
  list(TRANSFORM ARG_FILES PREPEND "${ARG_FOLDER}/" OUTPUT_VARIABLE paths)
  add_custom_command(OUTPUT "${out}" DEPENDS ${paths} "${PROJECT_SOURCE_DIR}/tools/embed_texts.py"
    COMMAND python3 -B "${PROJECT_SOURCE_DIR}/tools/embed_texts.py" "${out}" "${ARG_NAMESPACE}" "${ARG_FOLDER}" ${ARG_FILES}
    VERBATIM)
  target_sources(${target} PRIVATE "${out}")
  target_include_directories(${target} PRIVATE "${CMAKE_CURRENT_BINARY_DIR}/embedded")
endfunction()
