#include "worker/starter/library_path.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

namespace starter {
namespace {

std::string value_of(const char* name) {
  const char* value = ::getenv(name);
  return value == nullptr ? "none" : value;
}

TEST(LibraryPath, IsLentToTheProgramAndTakenBackThere) {
  for (const char* outer : {"", "/of/the/caller:/of/another"}) {
    if (*outer == '\0') {
      ::unsetenv("LD_LIBRARY_PATH");
    } else {
      ::setenv("LD_LIBRARY_PATH", outer, 1);
    }
    lend_library_path("/torch/lib");
    EXPECT_EQ(value_of("LD_LIBRARY_PATH"), *outer == '\0' ? "/torch/lib" : "/torch/lib:" + std::string(outer));
    for (int times = 0; times < 2; ++times) {  // the second: without a starter
      take_back_library_path();
      EXPECT_EQ(value_of("LD_LIBRARY_PATH"), *outer == '\0' ? "none" : outer);
      EXPECT_EQ(value_of("MUSTER_OUTER_LIBRARY_PATH"), "none");
    }
    ::unsetenv("LD_LIBRARY_PATH");
  }
}

}  // namespace
}  // namespace starter
