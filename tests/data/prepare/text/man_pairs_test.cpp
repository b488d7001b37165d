#include "data/prepare/text/man_pages.h"

#include <gmock/gmock.h>

#include <random>
#include <set>

#include "data/prepare/text/text_source.h"
#include "tests/temporary_folder.h"

namespace data::prepare {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kLong =
    "List information about the FILEs (the current directory by default).\n.PP\nSort entries alphabetically "
    "if none of \\fB\\-cftu\\fR is given.\n";

TEST(ManPair, IsTheDescriptionAndTheLineOfTheName) {
  const auto pair =
      man_pair(".TH LS 1\n.SH \"Name\"\nls \\- list directory\n contents\n.SH SYNOPSIS\n.B ls\n.SH DESCRIPTION\n" +
               kLong + ".SH OPTIONS\nmore\n");
  ASSERT_TRUE(pair);
  EXPECT_EQ(pair->summary, "list directory contents");
  EXPECT_EQ(
      pair->article,
      "List information about the FILEs (the current directory by default).\n\nSort entries alphabetically if none "
      "of -cftu is given.");
}

TEST(ManPair, IsReadFromMdocAndBehindMacroDefinitions) {
  const auto mdoc = man_pair(".Sh NAME\n.Nm tool ,\n.Nm tools\n.Nd lists what there is\n.Sh DESCRIPTION\n" + kLong);
  ASSERT_TRUE(mdoc);
  EXPECT_EQ(mdoc->summary, "lists what there is");
  const auto defined = man_pair(
      ".de Sh\n.SH NAME\nwrong \\- wrong wrong wrong\n..\n.SH NAME\nx \\- right summary\n.SH DESCRIPTION\n" + kLong);
  ASSERT_TRUE(defined);
  EXPECT_EQ(defined->summary, "right summary");
}

TEST(ManPair, IsMissingWhereThePageLacksAPart) {
  EXPECT_FALSE(man_pair(".so man1/ls.1\n"));
  EXPECT_FALSE(man_pair(".SH NAME\nls \\- list contents\n.SH DESCRIPTION\nshort\n"));
  EXPECT_FALSE(man_pair(".SH NAME\nls list contents\n.SH DESCRIPTION\n" + kLong));
  EXPECT_FALSE(man_pair(".SH DESCRIPTION\n" + kLong));
  EXPECT_FALSE(man_pair(""));
}

TEST(ManPair, CutsLongArticlesBetweenCharacters) {
  std::string article = "a";
  while (article.size() < (70U << 10)) article += "\xc3\xa4\xc3\xb6";
  const auto pair = man_pair(".SH NAME\nx \\- long article\n.SH DESCRIPTION\n" + article + "\n");
  ASSERT_TRUE(pair);
  EXPECT_EQ(pair->article.size(), (64U << 10) - 1);
}

TEST(ManPair, NeverThrows) {
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    std::string page = ".SH NAME\nx \\- something long\n.SH DESCRIPTION\n" + kLong;
    for (int flips = 0; flips < 20; ++flips) page[random() % page.size()] = static_cast<char>(random());
    EXPECT_NO_THROW(man_pair(page));
  }
}

class ManPairs : public ::testing::Test {
 protected:
  void write_pages(int count) {
    for (int i = 0; i < count; ++i) {
      test::write_file(folder_ / ("man" + std::to_string(1 + i % 8)) / ("page" + std::to_string(i) + ".1"),
                       ".SH NAME\np \\- summary number " + std::to_string(i) + "\n.SH DESCRIPTION\n" + kLong);
    }
  }
  static std::vector<std::string> summaries(const TextSource& source) {
    std::vector<std::string> out;
    for (std::int64_t part = 0; part < source.parts; ++part) {
      source.read(part, [&](const TextRecord& record) { out.emplace_back(record.target); });
    }
    return out;
  }
  test::TemporaryFolder folder_{test::memory_folder()};
};

TEST_F(ManPairs, EveryPageIsPassedOnceInAFixedOrder) {
  write_pages(600);
  test::write_file(folder_ / "man1/empty.1", "");
  test::write_file(folder_ / "man1/damaged.1.gz", "\x1f\x8bnothing");
  std::filesystem::create_symlink("page0.1", folder_ / "man1/again.1");
  const auto source = open_man_pairs({.folder = folder_.path()});
  EXPECT_EQ(source.parts, 2);
  EXPECT_EQ(source.kind, RecordKind::kPair);
  const auto all = summaries(source);
  EXPECT_EQ(all.size(), 600U);
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 600U);
  EXPECT_EQ(summaries(open_man_pairs({.folder = folder_.path()})), all);
  const auto few = open_man_pairs({.folder = folder_.path(), .most_pages = 5});
  EXPECT_LE(summaries(few).size(), 5U);
  EXPECT_NE(few.description, source.description);
  EXPECT_THROW(source.read(2, [](const TextRecord&) {}), std::out_of_range);
}

TEST_F(ManPairs, TooFewPagesGiveTheBuiltInOnesOrAnError) {
  write_pages(3);
  const auto source = open_man_pairs({.folder = folder_.path()});
  EXPECT_THAT(source.name,
              StartsWith("the built-in manual pages, because " + folder_.path().native() + " has 3 pages"));
  EXPECT_EQ(summaries(source).size(), fixture_texts("pages/").size());
  EXPECT_EQ(fixture_texts("pages/").size(), 20U);
  try {
    open_man_pairs({.folder = folder_.path(), .may_fall_back = false});
    FAIL() << "want an error";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("holds 3 manual pages, want 500; install some"));
  }
}

}  // namespace
}  // namespace data::prepare
