// Goal: after a crash a file is the old one or the new one, whole, and nothing of a writer is left beside it.
#include "base/durable_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <functional>
#include <system_error>

#include "base/fd.h"
#include "tests/temporary_folder.h"

namespace base {
namespace {

using ::testing::HasSubstr;

std::string failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::system_error& error) {
    return error.what();
  }
  return "no failure";
}

std::ptrdiff_t files_in(const std::filesystem::path& folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

unsigned mode_of(const std::filesystem::path& path) {
  struct stat info {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0);
  return info.st_mode & 0777;
}

TEST(DurableFile, ReplacesAsAWholeAndLeavesNothingBeside) {
  test::TemporaryFolder folder;
  const auto file = folder.path() / "f";
  write_file_durably(file, "one");
  write_file_durably(file, "two");
  EXPECT_EQ(read_small_file(file), "two");
  EXPECT_EQ(mode_of(file), 0600U);
  EXPECT_EQ(files_in(folder.path()), 1);
  EXPECT_EQ(read_small_file(folder.path() / "absent"), "");
}

TEST(DurableFile, NamesThePathThatFails) {
  EXPECT_THAT(failure_of([] { write_file_durably("/proc/none/f", "x"); }), HasSubstr("/proc/none/f"));
  EXPECT_THAT(failure_of([] { sync_folder("/proc/none"); }), HasSubstr("cannot sync /proc/none"));
}

TEST(DurableFile, IsCreatedOnceWithItsMode) {
  test::TemporaryFolder folder;
  const auto file = folder.path() / "f";
  create_file_durably(file, "one", 0640);
  EXPECT_THAT(failure_of([&] { create_file_durably(file, "two", 0640); }), HasSubstr("File exists"));
  EXPECT_EQ(read_small_file(file), "one");
  EXPECT_EQ(mode_of(file), 0640U);
  EXPECT_EQ(files_in(folder.path()), 1);
}

TEST(DurableFile, InAnOpenFolderIsReplacedThroughItsTemporaryFile) {
  test::TemporaryFolder folder;
  const Fd opened(::open(folder.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_TRUE(opened);
  test::write_file(folder / "draft", "left by a crash, and longer than the next text");
  replace_file_at(opened.get(), "f", "draft", "one");
  replace_file_at(opened.get(), "f", "draft", "two");
  EXPECT_EQ(read_small_file(folder / "f"), "two");
  EXPECT_EQ(files_in(folder.path()), 1);
}

TEST(DurableFile, KeepsTheOldTextWhereTheDiskIsFull) {
  test::TemporaryFolder folder;
  const Fd opened(::open(folder.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  test::write_file(folder / "f", "old");
  std::filesystem::create_symlink("/dev/full", folder / "draft");
  EXPECT_THAT(failure_of([&] { replace_file_at(opened.get(), "f", "draft", "new"); }), HasSubstr("cannot write draft"));
  EXPECT_EQ(read_small_file(folder / "f"), "old");
}

}  // namespace
}  // namespace base
