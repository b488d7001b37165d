#include "base/fd.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "base/durable_file.h"

namespace base {
namespace {

TEST(OpenFiles, AreRaisedToTheHardLimitAndGivenBack) {
  const auto first = open_files_limit();
  set_open_files(200);
  EXPECT_EQ(open_files_limit().soft, 200U);
  EXPECT_EQ(raise_open_files_limit().soft, 200U);
  EXPECT_EQ(open_files_limit().soft, first.hard);
  set_open_files(0);
  EXPECT_EQ(open_files_limit().soft, first.hard) << "0 leaves it";
  set_open_files(first.soft);
}

TEST(Room, IsWhatComesBack) {
  for (const int error : {ENOSPC, EDQUOT, EMFILE, ENFILE}) EXPECT_TRUE(lacks_room(error)) << error;
  for (const int error : {EROFS, EACCES, EIO, ENOENT}) EXPECT_FALSE(lacks_room(error)) << error;
}

}  // namespace
}  // namespace base
