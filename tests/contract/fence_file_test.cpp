#include "contract/fence_file.h"

#include <gtest/gtest.h>

// Goal: musterd, muster-task and muster-worker read a fence alike.
namespace contract {
namespace {

TEST(Fence, ComesBackAndNothingElseIsOne) {
  EXPECT_EQ(parse_fence(fence_text(12)), 12);
  for (const auto* text : {"", "attempt 12", "attempt \n", "attempt 1x\n", "Attempt 1\n", " attempt 1\n"}) {
    EXPECT_EQ(parse_fence(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace contract
