# Runs one suite of the browser tests beside the node_modules of the build folder:
# cmake -DNODE=node -DTESTS=web/test -DFOLDER=build/web -DSUITE=dashboard -P run_tests.cmake
cmake_minimum_required(VERSION 3.24)
# Each suite has its own copy, for suites run side by side.
file(REMOVE_RECURSE "${FOLDER}/test-${SUITE}")
file(COPY "${TESTS}/" DESTINATION "${FOLDER}/test-${SUITE}")
execute_process(COMMAND "${NODE}" --test "test-${SUITE}/${SUITE}.test.mjs" WORKING_DIRECTORY "${FOLDER}" RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${SUITE}: tests failed")
endif()
