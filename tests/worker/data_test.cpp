#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <vector>

#include "data/dataset.h"
#include "data/text_source.h"
#include "data/token_file.h"
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

void set_modified(const std::filesystem::path& file, timespec at) {
  const timespec times[2] = {at, at};
  ASSERT_EQ(::utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
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

// Goal: a description must not outlive an edit, because the cache finds tokens by description.
TEST(FolderSource, ItsDescriptionFollowsAnEditThatKeepsTheSize) {
  const TemporaryFolder folder;
  write_file(folder / "a", "12345");
  set_modified(folder / "a", {1700000000, 1});
  const auto before = folder_source(folder).description;
  write_file(folder / "a", "54321");
  set_modified(folder / "a", {1700000000, 2});
  EXPECT_NE(folder_source(folder).description, before);
}

// Goal: an edit is noticed even if an archive or a copy restores the old modification time.
TEST(FolderSource, ItsDescriptionFollowsWhatPutsTheTimeOfAnEditBack) {
  const TemporaryFolder folder;
  write_file(folder / "a", "12345");
  set_modified(folder / "a", {1700000000, 1});
  const auto before = folder_source(folder).description;
  std::string now = before;
  for (int i = 0; i < 10'000 && now == before; ++i) {  // the kernel's clock for file times has a coarse tick
    write_file(folder / "a", "54321");
    set_modified(folder / "a", {1700000000, 1});
    now = folder_source(folder).description;
  }
  EXPECT_NE(now, before);
}

TEST(FolderSource, ATouchedFileIsTheSameText) {
  const TemporaryFolder folder;
  write_file(folder / "text/a", "12345");
  set_modified(folder / "text/a", {1700000000, 1});
  const auto source = [&] { return open_text_source({.kind = "folder", .path = (folder / "text").native()}); };
  const auto before = source();
  const auto tokens = open_or_build_tokens(before, (folder / "cache").native());
  set_modified(folder / "text/a", {1700000000, 2});
  const auto after = source();
  EXPECT_NE(after.description, before.description);
  EXPECT_EQ(open_or_build_tokens(after, (folder / "cache").native()).checksum(), tokens.checksum());
}

// Goal: after an edit that keeps the length, the tokens are those of the new text.
TEST(FolderSource, AnEditThatKeepsTheSizeReachesTheTokens) {
  const TemporaryFolder folder;
  const auto tokens_of = [&](const char* text, long nanosecond) {
    write_file(folder / "text/a", text);
    set_modified(folder / "text/a", {1700000000, nanosecond});
    const auto source = open_text_source({.kind = "folder", .path = (folder / "text").native()});
    const auto file = open_or_build_tokens(source, (folder / "cache").native());
    return std::string(file.tokens().begin(), file.tokens().end() - 1);
  };
  EXPECT_EQ(tokens_of("12345", 1), "12345");
  EXPECT_EQ(tokens_of("54321", 2), "54321");
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

// Goal: nodes with the same packages share one token file, and edited pages get another.
TEST(ManSource, ItsDescriptionFollowsContentsAndNothingThatDiffersBetweenNodes) {
  const TemporaryFolder one, two;
  for (const auto* machine : {&one, &two}) {
    write_file(*machine / "man1/page.1", "words");
    set_modified(*machine / "man1/page.1", {1700000000, 1});
  }
  const auto description = [](const TemporaryFolder& machine) {
    return open_text_source({.kind = "man", .man_folder = machine.path().native()}).description;
  };
  const auto before = description(one);
  EXPECT_EQ(description(two), before);
  write_file(one / "man1/page.1", "sword");
  set_modified(one / "man1/page.1", {1700000000, 2});
  EXPECT_NE(description(one), before);
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

// Method: the packed sizes of all sections are summed. One byte below the threshold is too little.
TEST(AutoSource, IsTheManualPagesWhereThereAreEnough) {
  constexpr std::size_t kEnough = 512 << 10;
  const TemporaryFolder folder;
  write_file(folder / "man1/one.1", std::string(kEnough / 2, 'a'));
  write_file(folder / "man8/two.8", std::string(kEnough / 2 - 1, 'b'));
  const TextSourceOptions options{.kind = "auto", .man_folder = folder.path().native()};
  EXPECT_EQ(open_text_source(options).name, "the built-in text");
  write_file(folder / "man7/three.7", "c");
  const auto source = open_text_source(options);
  EXPECT_EQ(source.name, "the manual pages of this machine");
  EXPECT_THAT(source.description, ::testing::StartsWith("man "));
  EXPECT_EQ(documents(source).size(), 3u);
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
