#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <vector>

#include "data/dataset.h"
#include "data/text_source.h"
#include "rank/errors.h"
#include "temporary_folder.h"

namespace worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TemporaryFolder;
using testing::write_file;

std::vector<std::string> documents(const TextSource& source) {
  std::vector<std::string> out;
  source.read([&](std::string_view text) { out.emplace_back(text); });
  return out;
}

TextSource folder_source(const TemporaryFolder& folder, std::int64_t max_bytes = 1 << 20) {
  return open_text_source({.kind = "folder", .path = folder.path().native(), .max_bytes = max_bytes});
}

TEST(FolderSource, ReadsTextFilesBelowItInOrder) {
  const TemporaryFolder folder;
  write_file(folder / "b.txt", "second");
  write_file(folder / "a/deep/x.txt", "first");
  write_file(folder / ".hidden", "no");
  write_file(folder / ".git/config", "no");
  write_file(folder / "c.bin", std::string_view("\0\1\2", 3));
  std::filesystem::create_symlink(folder / "b.txt", folder / "d.txt");
  EXPECT_THAT(documents(folder_source(folder)), ElementsAre("first", "second"));
}

TEST(FolderSource, StopsAtTheLimit) {
  const TemporaryFolder folder;
  write_file(folder / "a", "12345");
  write_file(folder / "b", "67890");
  EXPECT_THAT(documents(folder_source(folder, 7)), ElementsAre("12345", "67"));
}

TEST(FolderSource, ItsDescriptionFollowsItsFiles) {
  const TemporaryFolder folder;
  write_file(folder / "a", "12345");
  const auto before = folder_source(folder).description;
  EXPECT_EQ(folder_source(folder).description, before);
  write_file(folder / "a", "123456");
  EXPECT_NE(folder_source(folder).description, before);
}

TEST(FolderSource, NamesAFolderThatIsNotThereOrHoldsNothing) {
  const TemporaryFolder folder;
  EXPECT_THAT(message_of<UsageError>([] { open_text_source({.kind = "folder", .path = "/no/such"}); }),
              HasSubstr("data.path = \"/no/such\""));
  EXPECT_THAT(message_of<UsageError>([&] { folder_source(folder); }), HasSubstr("holds no text"));
}

TEST(ManSource, ReadsPackedAndPlainPagesAndLeavesDamagedOnesOut) {
  const TemporaryFolder folder;
  write_file(folder / "man1/plain.1", ".SH NAME\nplain words\n");
  write_file(folder / "man8/packed.8", ".SH NAME\npacked words\n");
  ASSERT_EQ(std::system(("gzip '" + (folder / "man8/packed.8").native() + "'").c_str()), 0);
  write_file(folder / "man1/broken.1.gz", "this is no gzip");
  const TextSourceOptions options{.kind = "man", .man_folder = folder.path().native()};
  EXPECT_THAT(documents(open_text_source(options)),
              ::testing::UnorderedElementsAre(HasSubstr("plain words"), HasSubstr("packed words")));
}

TEST(ManSource, NamesTheRemedyWhereThereAreNoPages) {
  const TemporaryFolder folder;
  EXPECT_THAT(message_of<UsageError>([&] { open_text_source({.kind = "man", .man_folder = folder.path().native()}); }),
              HasSubstr("no manual pages"));
}

TEST(AutoSource, FallsBackOnTheFixtureWhereManualPagesAreFew) {
  const TemporaryFolder folder;
  write_file(folder / "man1/one.1", "little");
  const auto source = open_text_source({.kind = "auto", .man_folder = folder.path().native()});
  EXPECT_THAT(source.description, HasSubstr("fixture"));
  EXPECT_EQ(source.name, "the built-in text");
}

TEST(FixtureSource, HoldsEnoughTextToLearnFrom) {
  std::size_t bytes = 0;
  for (const auto& text : documents(open_text_source({.kind = "fixture"}))) bytes += text.size();
  EXPECT_GT(bytes, 30'000u);
}

TEST(Dataset, TargetsAreTheTokensOneLater) {
  std::vector<std::uint16_t> tokens;
  for (std::uint16_t i = 0; i < 10; ++i) tokens.push_back(i);
  const TokenDataset data(tokens, 3, 0.34);
  EXPECT_EQ(data.train_samples(), 2);
  EXPECT_EQ(data.validation_samples(), 1);
  std::int64_t inputs[3], targets[3];
  data.copy_sample(1, inputs, targets);
  EXPECT_THAT(inputs, ElementsAre(3, 4, 5));
  EXPECT_THAT(targets, ElementsAre(4, 5, 6));
  data.copy_sample(2, inputs, targets);
  EXPECT_THAT(targets, ElementsAre(7, 8, 9));
}

TEST(Dataset, TooLittleTextIsAnErrorWithARemedy) {
  const std::vector<std::uint16_t> tokens(100);
  EXPECT_THAT(message_of<UsageError>([&] { TokenDataset(tokens, 100, 0); }), HasSubstr("data.sequence_length = 100"));
  EXPECT_NO_THROW(TokenDataset(tokens, 99, 0));
  EXPECT_THROW(TokenDataset(tokens, 99, 0.1), UsageError);
}

}  // namespace
}  // namespace worker
