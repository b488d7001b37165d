// Goal: reasons are plain sentences, whatever ranks say.
#include "controller/core/core_text.h"

#include <gtest/gtest.h>

#include "base/words.h"

namespace test {
namespace {

using namespace std::chrono_literals;

TEST(Text, DurationsReadAsPeopleSayThem) {
  EXPECT_EQ(core::duration_text(0ms), "0 ms");
  EXPECT_EQ(core::duration_text(999ms), "999 ms");
  EXPECT_EQ(core::duration_text(1s), "1 s");
  EXPECT_EQ(core::duration_text(1550ms), "1.5 s");
  EXPECT_EQ(core::duration_text(31600ms), "31 s");
  EXPECT_EQ(core::duration_text(60s), "1 min");
  EXPECT_EQ(core::duration_text(65s), "1 min 5 s");
  EXPECT_EQ(core::duration_text(125min), "2 h 5 min");
}

TEST(Text, SignalsHaveNames) {
  EXPECT_EQ(core::signal_text(9), "SIGKILL");
  EXPECT_EQ(core::signal_text(11), "SIGSEGV");
  EXPECT_EQ(core::signal_text(12345), "signal 12345");
}

TEST(Text, ForeignWordsBecomeOneShortLine) {
  EXPECT_EQ(core::plain_words("  a\n\tb\r\n"), "a b");
  EXPECT_EQ(core::plain_words(""), "");
  EXPECT_EQ(core::plain_words(std::string("a\0b", 3)), "a b");
  EXPECT_EQ(core::plain_words(std::string(10000, 'x')).size(), core::kMaxWordsBytes);
  std::string umlauts;
  for (int i = 0; i < 1000; ++i) umlauts += "\xc3\xa4";
  const std::string cut = core::plain_words(umlauts);
  EXPECT_LE(cut.size(), core::kMaxWordsBytes);
  EXPECT_EQ(base::valid_utf8(cut), cut) << "no character is cut in two";
}

}  // namespace
}  // namespace test
