#include "base/words.h"

#include <gtest/gtest.h>

namespace base {
namespace {

TEST(Utf8, InvalidBytesAreReplaced) {
  EXPECT_EQ(valid_utf8("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"),
            "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(valid_utf8("\xff"), "?");
  EXPECT_EQ(valid_utf8("a\xc3"), "a?") << "cut short";
  EXPECT_EQ(valid_utf8("\xc0\xaf"), std::string(2, '?')) << "overlong";
  EXPECT_EQ(valid_utf8("\xed\xa0\x80"), std::string(3, '?')) << "surrogate";
  EXPECT_EQ(valid_utf8("\xf4\x90\x80\x80"), std::string(4, '?')) << "past the last character";
  EXPECT_EQ(valid_utf8("\xe0\x80\x80"), std::string(3, '?')) << "overlong";
}

TEST(Utf8, OnlyValidTextIsAccepted) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("gr\xc3\xbc\xc3\x9f"));
  EXPECT_FALSE(is_utf8("gr\xfc"));
  EXPECT_FALSE(is_utf8("gr\xc3"));
}

}  // namespace
}  // namespace base
