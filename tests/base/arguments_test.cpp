// Goal: the programs of this project read their arguments in the same way, and name the mistake in one that they cannot
// read.
#include "base/arguments.h"

#include <gmock/gmock.h>

#include <array>

#include "base/usage_error.h"

namespace base {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

constexpr auto kKnown = std::to_array<Option>({{"--seed"}, {"--json", false}, {"--file", true, "-f"}});

Arguments read(const std::vector<std::string>& words) {
  return read_arguments(words, kKnown);
}

std::string mistake_in(const std::vector<std::string>& words) {
  try {
    read(words);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "(read)";
}

TEST(Arguments, AreReadInAnyOrderAndInBothForms) {
  const auto line = read({"a", "--seed=3", "-", "-f", "x=y", "--json", "b"});
  EXPECT_THAT(line.words, ElementsAre("a", "-", "b"));
  EXPECT_THAT(line.options, ElementsAre(Pair("--seed", "3"), Pair("--file", "x=y"), Pair("--json", "")));
  EXPECT_EQ(*line.find("--file"), "x=y");
  EXPECT_EQ(read({"--seed="}).find("--seed")->size(), 0U);
  EXPECT_EQ(*read({"--seed", "--json"}).find("--seed"), "--json") << "a value may begin with dashes";
  EXPECT_FALSE(line.help);
  EXPECT_FALSE(read({}).has("--json"));
}

TEST(Arguments, BehindTwoDashesAreWords) {
  const auto line = read({"--json", "--", "--seed", "--", "-h"});
  EXPECT_THAT(line.words, ElementsAre("--seed", "--", "-h"));
  EXPECT_FALSE(line.help);
}

TEST(Arguments, MayAskForHelp) {
  EXPECT_TRUE(read({"--help"}).help);
  EXPECT_TRUE(read({"a", "-h"}).help);
}

TEST(Arguments, MistakesAreNamed) {
  EXPECT_EQ(mistake_in({"--sed", "3"}), "there is no option --sed, did you mean --seed");
  EXPECT_EQ(mistake_in({"--none"}), "there is no option --none; want one of --seed, --json, --file");
  EXPECT_EQ(mistake_in({"--\xff"}), "there is no option --?; want one of --seed, --json, --file");
  EXPECT_EQ(mistake_in({"--seed"}), "--seed wants a value");
  EXPECT_EQ(mistake_in({"--json=yes"}), "--json=yes: --json takes no value");
  EXPECT_EQ(mistake_in({"-f", "x", "--file", "y"}), "--file is given twice; give it once");
  try {
    read_arguments(std::vector<std::string>{"-x"}, {});
    ADD_FAILURE() << "read";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "there is no option -x");
  }
}

}  // namespace
}  // namespace base
