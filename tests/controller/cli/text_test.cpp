#include "cli/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/key_help.h"
#include "jobfile/job_keys.h"

namespace cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Text, IsCutByCharactersAndCannotMoveTheCursor) {
  EXPECT_EQ(cut("abc", 3), "abc");
  EXPECT_EQ(cut("abcdef", 5), "ab...");
  EXPECT_EQ(cut("äöüäöü", 5), "äö...");
  EXPECT_EQ(cut("a\rb\x1b[2Jc", 20), "a b [2Jc");
}

TEST(Text, IsWrappedAtSpaces) {
  EXPECT_THAT(wrapped("one two three", 7), ElementsAre("one two", "three"));
  EXPECT_THAT(wrapped("abcdefghij", 4), ElementsAre("abcd", "efgh", "ij"));
  EXPECT_THAT(wrapped("", 4), ElementsAre(""));
}

TEST(Text, NumbersAreShort) {
  EXPECT_EQ(duration_text(312), "312ms");
  EXPECT_EQ(duration_text(192'500), "3m12s");
  EXPECT_EQ(duration_text(187'250'000), "2d4h");
  EXPECT_EQ(number_text(2.87123), "2.871");
  EXPECT_EQ(number_text(21034.5), "21034");
  EXPECT_EQ(number_text(0.0003), "0.0003");
}

TEST(Text, TimesAreReadAndShownInUtc) {
  EXPECT_EQ(time_ms("1970-01-02T00:00:01.500Z"), 86'401'500);
  EXPECT_EQ(time_ms(""), -1);
  EXPECT_EQ(time_text("2026-11-20T19:48:55.123Z"), "2026-11-20 19:48:55");
  EXPECT_EQ(time_text(""), "-");
  EXPECT_EQ(span_text("2026-11-20T19:48:55.000Z", "2026-11-20T19:52:07.000Z"), "3m12s");
}

TEST(FieldHelp, NamesEveryKeyAndFits80Columns) {
  const auto help = key_help(80);
  for (const auto& field : jobfile::job_keys()) {
    const auto dot = field.name.rfind('.');
    EXPECT_THAT(help, HasSubstr(std::string(field.name.substr(dot == std::string_view::npos ? 0 : dot + 1))));
  }
  for (std::size_t at = 0; at < help.size();) {
    const auto end = help.find('\n', at);
    EXPECT_LE(width_of(help.substr(at, end - at)), 80U) << help.substr(at, end - at);
    at = end + 1;
  }
}

}  // namespace
}  // namespace cli
