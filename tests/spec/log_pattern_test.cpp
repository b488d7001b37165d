// Goal: a pattern finds its first group in any line in time that grows with the line alone.
#include "spec/log_pattern.h"

#include <gtest/gtest.h>

#include "spec/rank_path.h"

namespace spec {
namespace {

TEST(LogPattern, FindsItsFirstGroupWhereverItStands) {
  const LogPattern loss(R"(loss[ =:]+([\d.e+-]+|nan))");
  EXPECT_EQ(loss.problem(), "");
  EXPECT_EQ(loss.find("step 3 loss 2.5 acc 1"), "2.5");
  EXPECT_EQ(loss.find("loss = nan"), "nan");
  EXPECT_EQ(loss.find("\xff\xfe loss: 1e-4\t"), "1e-4") << "bytes that are no UTF-8 before it";
  EXPECT_FALSE(loss.find("no such word"));
  EXPECT_FALSE(LogPattern("a(b)|c").find("c")) << "the group is in the other alternative";
}

TEST(LogPattern, SaysWhatIsWrongAndThenFindsNothing) {
  const LogPattern broken("loss (");
  EXPECT_EQ(broken.problem(), "want a regular expression: missing ): loss (");
  EXPECT_FALSE(broken.find("loss ("));
  EXPECT_NE(LogPattern(std::string(kLongestPattern + 1, '(')).problem(), "");
}

// A backtracking engine needs exponential time for this pattern, and the stack for this line.
TEST(LogPattern, ALineAsLongAsALogAndANastyPatternHarmNobody) {
  const LogPattern nasty("(a*)*b");
  EXPECT_FALSE(nasty.find(std::string(1 << 20, 'a')));
}

TEST(RankPath, TakesVariablesInBothSpellings) {
  const auto value_of = [](const std::string& name) -> std::optional<std::string> {
    if (name == "A") return "x/y";
    return std::nullopt;
  };
  EXPECT_EQ(expand_rank_path("$A/c-${A}1-$", value_of).path, "x/y/c-x/y1-$");
  EXPECT_EQ(expand_rank_path("$A", value_of).problem, "");
  EXPECT_EQ(expand_rank_path("c/$NONE/d", value_of).problem, "the variable NONE is not set");
  for (const auto* text : {"${A", "${}", "${A b}"}) {
    EXPECT_EQ(expand_rank_path(text, value_of).problem, "want ${NAME} with the name of a variable") << text;
  }
}

}  // namespace
}  // namespace spec
