# Writes muster_version.h, unless it is there with the same text: see Version.cmake.
execute_process(COMMAND git -C "${SOURCE}" rev-parse --short=12 HEAD OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
set(text "${VERSION}")
if(status EQUAL 0)
  set(text "${VERSION} (${commit})")
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT "#pragma once\n\n#define MUSTER_VERSION_TEXT \"${text}\"\n")
