#include "data/tokenizers/tokenizer.h"

#include <gtest/gtest.h>

namespace data::tokenizers {
namespace {

const std::string kReplaced = "\xEF\xBF\xBD";

TEST(Utf8, ValidTextStaysAsItIs) {
  const std::string text("a\0\x7F\xC2\x80\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xF0\x90\x80\x80\xF4\x8F\xBF\xBF", 22);
  EXPECT_EQ(repaired(text), text);
  EXPECT_EQ(repaired(""), "");
}

TEST(Utf8, TheBeginningOfACharacterIsReplacedOnce) {
  EXPECT_EQ(repaired("a\xE2\x82"), "a" + kReplaced);
  EXPECT_EQ(repaired("\xF0\x9F\x98z"), kReplaced + "z");
  EXPECT_EQ(repaired("\xC3\xC3\xA9"), kReplaced + "\xC3\xA9");
}

TEST(Utf8, BytesThatBeginNoCharacterAreReplacedOneByOne) {
  EXPECT_EQ(repaired("\x80\xBF"), kReplaced + kReplaced);
  EXPECT_EQ(repaired("\xC0\xAF"), kReplaced + kReplaced);                                  // overlong
  EXPECT_EQ(repaired("\xE0\x9F\x80"), kReplaced + kReplaced + kReplaced);                  // overlong
  EXPECT_EQ(repaired("\xED\xA0\x80"), kReplaced + kReplaced + kReplaced);                  // a surrogate
  EXPECT_EQ(repaired("\xF4\x90\x80\x80"), kReplaced + kReplaced + kReplaced + kReplaced);  // beyond U+10FFFF
  EXPECT_EQ(repaired("\xF5\xFF"), kReplaced + kReplaced);
}

}  // namespace
}  // namespace data::tokenizers
