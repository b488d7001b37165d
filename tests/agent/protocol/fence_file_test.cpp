#include "agent/protocol/files.h"

#include <gtest/gtest.h>

// Goal: musterd, muster-agent and muster-worker read a fence alike.
namespace agent::protocol {
namespace {

TEST(Fence, ComesBackAndNothingElseIsOne) {
  EXPECT_TRUE(fence_text({7, 12}).starts_with("job 7 attempt 12 check ")) << fence_text({7, 12});
  EXPECT_EQ(parse_fence("job 7 attempt 12\n"), (Fence{7, 12})) << "as an earlier musterd has written it";
  EXPECT_EQ(parse_fence(fence_text({7, 12})), (Fence{7, 12}));
  EXPECT_EQ(parse_fence("attempt 3\n"), (Fence{0, 3}));
  for (const auto* text : {"", "attempt 12", "attempt \n", "attempt 1x\n", "Attempt 1\n", " attempt 1\n", "job 1\n",
                           "job 1 attempt 2", "job attempt 2\n", "job 1 attempt 2\n\n", "job -1 attempt 2\n"}) {
    EXPECT_EQ(parse_fence(text), std::nullopt) << text;
  }
}

TEST(Fence, AChangedDigitIsFound) {
  const auto text = fence_text({70, 129});
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (const char c : std::string("0123456789abcdef \n")) {
      auto changed = text;
      changed[at] = c;
      if (changed == text) continue;
      EXPECT_EQ(parse_fence(changed), std::nullopt) << changed;
    }
  }
}

TEST(Fence, LetsItsOwnJobsLaterAttemptsWriteAndNoOtherJob) {
  const Fence fence{7, 2};
  EXPECT_TRUE(fence.lets(7, 2));
  EXPECT_TRUE(fence.lets(7, 3));
  EXPECT_FALSE(fence.lets(7, 1));
  EXPECT_FALSE(fence.lets(8, 1));
  EXPECT_FALSE(fence.lets(8, 5));
  EXPECT_TRUE((Fence{0, 2}).lets(8, 2)) << "no job is named";
}

}  // namespace
}  // namespace agent::protocol
