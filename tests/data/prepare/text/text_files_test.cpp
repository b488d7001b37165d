// Goal: every text is read once whatever its parts are, and large files are cut where a line ends.
#include "data/prepare/text/text_source.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstdlib>

#include "data/prepare/text/man_pages.h"
#include "tests/temporary_folder.h"

namespace data::prepare {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::vector<std::string> read_all(const TextSource& source) {
  std::vector<std::string> out;
  for (std::int64_t part = 0; part < source.parts; ++part) {
    source.read(part, [&](const TextRecord& record) { out.emplace_back(record.text); });
  }
  return out;
}

std::string joined(const std::vector<std::string>& texts) {
  std::string out;
  for (const auto& text : texts) out += text;
  return out;
}

class TextFiles : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& text) {
    ::test::write_file(folder_ / name, text);
    return folder_ / name;
  }
  template <class Open>
  std::string error_of(const Open& open) {
    try {
      open();
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return {};
  }
  ::test::TemporaryFolder folder_;
};

TEST_F(TextFiles, AreReadInTheOrderOfTheirPaths) {
  write("in/b/x.txt", "three");
  write("in/a.txt", "one");
  write("in/b.txt", "two");
  write("in/.git/config", "hidden");
  write("in/empty.txt", "");
  write("in/program", std::string("\x7f"
                                  "ELF\0\0",
                                  6));
  const auto last = write("last.md", "four");
  std::filesystem::create_symlink(last, folder_ / "in/link.txt");
  EXPECT_THAT(read_all(open_text_files({.paths = {folder_ / "in", last}})), ElementsAre("one", "three", "two", "four"));
}

TEST_F(TextFiles, PartsOfAnySizeHaveTheSameRecords) {
  for (int i = 0; i < 30; ++i) write("in/" + std::to_string(i), std::string(static_cast<std::size_t>(i * 11), 'a'));
  const auto want = read_all(open_text_files({.paths = {folder_ / "in"}}));
  for (const std::int64_t bytes : {1, 100, 1'000, 1'000'000}) {
    const auto source = open_text_files({.paths = {folder_ / "in"}, .part_bytes = bytes});
    EXPECT_EQ(read_all(source), want) << bytes;
  }
  EXPECT_GT(open_text_files({.paths = {folder_ / "in"}, .part_bytes = 100}).parts, 10);
}

TEST_F(TextFiles, LargeOnesAreCutAtLineEnds) {
  std::string text;
  for (int i = 0; text.size() < (3U << 20) + 1000; ++i) text += "line " + std::to_string(i) + "\n";
  const auto records = read_all(open_text_files({.paths = {write("big.txt", text)}, .part_bytes = 1}));
  EXPECT_THAT(records, SizeIs(4));
  EXPECT_EQ(joined(records), text);
  for (const auto& record : records) EXPECT_TRUE(record.starts_with("line ") && record.ends_with("\n"));
}

TEST_F(TextFiles, WithoutLineEndsAreCutBetweenCharacters) {
  std::string text = "a";
  while (text.size() < (2U << 20) + 500) text += "\xe2\x82\xac";
  const auto records = read_all(open_text_files({.paths = {write("big.txt", text)}}));
  EXPECT_THAT(records, SizeIs(3));
  EXPECT_EQ(joined(records), text);
  for (const auto& record : records) EXPECT_NE(static_cast<std::uint8_t>(record[0]) & 0xc0, 0x80);
}

TEST_F(TextFiles, EndAtTheLimit) {
  write("in/a", "12345");
  write("in/b", "67\xe2\x82\xac");
  EXPECT_THAT(read_all(open_text_files({.paths = {folder_ / "in"}, .most_bytes = 6})), ElementsAre("12345", "6"));
  EXPECT_THAT(read_all(open_text_files({.paths = {folder_ / "in"}, .most_bytes = 8})), ElementsAre("12345", "67"));
  EXPECT_THAT(read_all(open_text_files({.paths = {folder_ / "in"}, .most_bytes = 5})), ElementsAre("12345"));
}

TEST_F(TextFiles, OnlyTextsUseUpTheLimit) {
  write("in/a.bin", std::string(100, '\0'));
  write("in/b.txt", "12345");
  EXPECT_THAT(read_all(open_text_files({.paths = {folder_ / "in"}, .most_bytes = 6})), ElementsAre("12345"));
}

TEST_F(TextFiles, AnotherContentIsAnotherDescription) {
  const auto file = write("a.txt", "one");
  const auto before = open_text_files({.paths = {file}}).description;
  EXPECT_EQ(open_text_files({.paths = {file}}).description, before);
  write("a.txt", "other");
  EXPECT_NE(open_text_files({.paths = {file}}).description, before);
}

// Goal: an edit is noticed even if an archive or a copy restores the old modification time.
TEST_F(TextFiles, AnEditThatPutsSizeAndTimeBackIsAnotherDescription) {
  const auto file = write("a.txt", "12345");
  const auto put_back = [&] {
    const timespec time{1700000000, 1};
    const timespec times[2] = {time, time};
    EXPECT_EQ(::utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
  };
  put_back();
  const auto before = open_text_files({.paths = {file}}).description;
  std::string now = before;
  for (int i = 0; i < 10'000 && now == before; ++i) {  // the kernel's clock for file times has a coarse tick
    write("a.txt", "54321");
    put_back();
    now = open_text_files({.paths = {file}}).description;
  }
  EXPECT_NE(now, before);
}

TEST_F(TextFiles, MistakesAreNamed) {
  std::filesystem::create_directory(folder_ / "none");
  EXPECT_THAT(error_of([&] { open_text_files({.paths = {folder_ / "none"}}); }), HasSubstr("/none: holds no files; "));
  EXPECT_THAT(error_of([&] { open_text_files({.paths = {folder_ / "gone"}}); }), HasSubstr("/gone: cannot be opened"));
}

TEST_F(TextFiles, BuiltInTextHasDocuments) {
  const auto all = read_all(open_built_in_text());
  EXPECT_GE(all.size(), 5U);
  EXPECT_EQ(joined(read_all(open_built_in_text(1000))), joined(all).substr(0, 1000));
}

TEST_F(TextFiles, ManualPagesArePlainTextInTheOrderOfAHash) {
  for (int i = 0; i < 1'100; ++i) {
    write("man/man" + std::to_string(1 + i % 8) + "/page" + std::to_string(i) + ".1",
          ".TH X 1\n.SH NAME\npage" + std::to_string(i) + " \\- \\fBbold\\fR words\n");
  }
  const auto source = open_man_text({.folder = folder_ / "man"});
  EXPECT_EQ(source.parts, 3);
  const auto all = read_all(source);
  ASSERT_THAT(all, SizeIs(1'100));
  EXPECT_THAT(all[0], HasSubstr(" - bold words"));
  const auto some = read_all(open_man_text({.folder = folder_ / "man", .most_bytes = 2'000}));
  EXPECT_EQ(joined(some), joined(all).substr(0, 2'000)) << "the first pages, and a part of the last";
  EXPECT_FALSE(has_man_text(folder_ / "man")) << "40 KB are not enough";
  EXPECT_THAT(error_of([&] { open_man_text({.folder = folder_ / "none"}); }), HasSubstr("apt-get install man-db"));
}

TEST_F(TextFiles, PackedManualPagesAreReadAndDamagedOnesLeftOut) {
  write("man/man1/plain.1", ".SH NAME\nplain words\n");
  write("man/man8/packed.8", ".SH NAME\npacked words\n");
  ASSERT_EQ(std::system(("gzip '" + (folder_ / "man/man8/packed.8").native() + "'").c_str()), 0);
  write("man/man1/broken.1.gz", "this is no gzip");
  EXPECT_THAT(read_all(open_man_text({.folder = folder_ / "man"})),
              ::testing::UnorderedElementsAre(HasSubstr("plain words"), HasSubstr("packed words")));
}

// Method: the packed sizes of all sections are summed. One byte below the threshold is too little.
TEST_F(TextFiles, ManualPagesAreEnoughFromHalfAMebibyteOn) {
  constexpr std::size_t kEnough = 512 << 10;
  write("man/man1/one.1", std::string(kEnough / 2, 'a'));
  write("man/man8/two.8", std::string(kEnough / 2 - 1, 'b'));
  EXPECT_FALSE(has_man_text(folder_ / "man"));
  write("man/man7/three.7", "c");
  EXPECT_TRUE(has_man_text(folder_ / "man"));
}

}  // namespace
}  // namespace data::prepare
