#include "controller/logs/log_tail.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/temporary_folder.h"

namespace {

namespace fs = std::filesystem;

class LogTail : public testing::Test {
 protected:
  void append(const std::string& text) { std::ofstream(path_, std::ios::app | std::ios::binary) << text; }
  std::string path() const { return path_.string(); }

  const test::TemporaryFolder folder_;
  const fs::path path_ = folder_ / "rank-0.log";
};

TEST_F(LogTail, AFileThatDoesNotExistYetReadsAsNothing) {
  const auto piece = logs::read_from(path(), 0);
  EXPECT_FALSE(piece.exists);
  EXPECT_EQ(piece.text, "");
  EXPECT_EQ(piece.next_offset, 0u);
  EXPECT_FALSE(logs::read_last_lines(path(), 10).exists);
}

TEST_F(LogTail, AFolderOrAFifoIsNoLog) {
  EXPECT_FALSE(logs::read_from(folder_.path().string(), 0).exists);
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  EXPECT_FALSE(logs::read_from(path(), 0).exists);
}

TEST_F(LogTail, KeepsAnUnterminatedLineBackUntilItIsWhole) {
  append("one\ntw");
  auto piece = logs::read_from(path(), 0);
  EXPECT_EQ(piece.text, "one\n");
  piece = logs::read_from(path(), piece.next_offset);
  EXPECT_EQ(piece.text, "");
  append("o\n");
  piece = logs::read_from(path(), piece.next_offset);
  EXPECT_EQ(piece.text, "two\n");
  EXPECT_EQ(piece.next_offset, 8u);
}

TEST_F(LogTail, HandsOutTheUnterminatedRestWhenTheWriterHasFinished) {
  append("one\ntw");
  auto piece = logs::read_from(path(), 0, logs::kChunkBytes, true);
  EXPECT_EQ(piece.text, "one\n");
  piece = logs::read_from(path(), piece.next_offset, logs::kChunkBytes, true);
  EXPECT_EQ(piece.text, "tw");
  EXPECT_EQ(logs::read_from(path(), piece.next_offset, logs::kChunkBytes, true).text, "");
}

TEST_F(LogTail, ATenMegabyteLineComesInChunksAndNothingIsLost) {
  const std::string line = std::string(10'000'000, 'x') + "\n";
  append("before\n" + line + "after\n");
  std::string all;
  std::uint64_t offset = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto piece = logs::read_from(path(), offset);
    if (piece.text.empty()) break;
    EXPECT_LE(piece.text.size(), logs::kChunkBytes);
    all += piece.text;
    offset = piece.next_offset;
  }
  EXPECT_EQ(all, "before\n" + line + "after\n");
}

TEST_F(LogTail, AReplacedFileIsReadFromItsBeginning) {
  append("a long first life\n");
  const auto offset = logs::read_from(path(), 0).next_offset;
  fs::remove(path_);
  append("new\n");
  EXPECT_EQ(logs::read_from(path(), offset).text, "new\n");
}

TEST_F(LogTail, TheLastLinesCountAnUnterminatedOne) {
  append("a\nb\nc\n");
  EXPECT_EQ(logs::last_lines_offset(path(), 0), 6u);
  EXPECT_EQ(logs::last_lines_offset(path(), 1), 4u);
  EXPECT_EQ(logs::last_lines_offset(path(), 2), 2u);
  EXPECT_EQ(logs::last_lines_offset(path(), 3), 0u);
  EXPECT_EQ(logs::last_lines_offset(path(), 99), 0u);
  append("d");
  EXPECT_EQ(logs::last_lines_offset(path(), 1), 6u);
  EXPECT_EQ(logs::last_lines_offset(path(), 2), 4u);
  append("\n\n");
  EXPECT_EQ(logs::last_lines_offset(path(), 1), 8u) << "an empty line is a line";
}

TEST_F(LogTail, FindsTheLastLinesAcrossBlocks) {
  std::string all, expected;
  for (int i = 0; i < 50'000; ++i) {
    const auto line = "line " + std::to_string(i) + "\n";
    all += line;
    if (i >= 40'000) expected += line;
  }
  append(all);
  const auto last = logs::read_last_lines(path(), 10'000);
  EXPECT_EQ(last.text, expected);
  EXPECT_FALSE(last.cut);
  EXPECT_EQ(last.offset, fs::file_size(path_));
}

TEST_F(LogTail, LastLinesOfATenMegabyteLineAreBoundedAndSaySo) {
  append("a\n" + std::string(10'000'000, 'x') + "\nend\n");
  const auto last = logs::read_last_lines(path(), 2);
  EXPECT_TRUE(last.cut);
  EXPECT_EQ(last.text.size(), logs::kTailBytes);
  EXPECT_TRUE(last.text.ends_with("xx\nend\n"));
  EXPECT_EQ(last.offset, fs::file_size(path_));
}

TEST_F(LogTail, LastLinesGoOnWithReadFromWithoutGapOrRepeat) {
  append("a\nb\nhal");
  const auto last = logs::read_last_lines(path(), 2);
  EXPECT_EQ(last.text, "b\n");
  append("f\n");
  EXPECT_EQ(logs::read_from(path(), last.offset).text, "half\n");
}

}  // namespace
