#include "data/prepare/text/packages.h"

#include <gmock/gmock.h>

namespace data::prepare {
namespace {

using ::testing::ElementsAre;

TEST(Deb822, GivesFieldsOfEachParagraph) {
  std::vector<std::string> seen;
  for_paragraphs("\n\nPackage: one\nSection:admin\n# a comment\n\nno field\n \t\npackage:\ttwo\r\n",
                 [&](const Deb822Paragraph& paragraph) {
                   seen.emplace_back(paragraph["Package"]);
                   seen.emplace_back(paragraph["section"]);
                 });
  EXPECT_THAT(seen, ElementsAre("one", "admin", "two\r", ""));
}

TEST(Deb822, ALineThatBeginsWithASpaceContinuesItsField) {
  for_paragraphs(" lost\nDescription: short\n long one\n .\n  indented\n#comment\n\tlast\nSection: net\n",
                 [](const Deb822Paragraph& paragraph) {
                   EXPECT_EQ(folded_text(paragraph["Description"]), "short\nlong one\n\n indented\nlast");
                   EXPECT_EQ(paragraph["Section"], "net");
                   EXPECT_EQ(paragraph["Homepage"], "");
                 });
}

}  // namespace
}  // namespace data::prepare
