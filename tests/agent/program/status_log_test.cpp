#include "agent/program/status_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "agent/protocol/attempt_folder.h"

namespace agent::program {

using namespace protocol;

class StatusFile : public testing::Test {
 protected:
  void SetUp() override {
    auto name = testing::TempDir() + "/status-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
    folder_ = open_folder(path_);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  void write(const std::string& text) { std::ofstream(path_ / status_file(0)) << text; }

  std::filesystem::path path_;
  base::Fd folder_;
};

const Started kStarted{"boot", "node \"1\"", 7, {{8, 123}, {9, 18446744073709551615U}}};

TEST_F(StatusFile, WhatIsWrittenIsRead) {
  StatusLog log(path_, 0, 2);
  EXPECT_FALSE(read_status(folder_.get()).started);
  log.add(to_line(kStarted));
  log.add(to_line(Exited{1, {5, 0}, false, 1, ""}));
  ASSERT_TRUE(log.flush());
  const auto status = read_status(folder_.get());
  EXPECT_EQ(status.started, kStarted);
  EXPECT_EQ(status.exits.at(1).exit.code, 5);
  EXPECT_FALSE(status.ended);
  log.erase();
  EXPECT_FALSE(read_status(folder_.get()).started);
}

TEST_F(StatusFile, ATornLastLineIsAsIfItWereNotThere) {
  const auto line = to_line(kStarted);
  for (std::size_t size = 0; size < line.size(); ++size) {
    write(line.substr(0, size));
    EXPECT_FALSE(read_status(folder_.get()).started) << size;
  }
}

TEST_F(StatusFile, AWholeLineOfGarbageIsAnError) {
  write("{\"fact\":\"exited\"}\n");
  EXPECT_THROW(read_status(folder_.get()), std::runtime_error);
}

TEST_F(StatusFile, FactsOfALaterVersionAreSkipped) {
  write("{\"fact\":\"new\",\"x\":1}\n" + to_line(kStarted));
  EXPECT_TRUE(read_status(folder_.get()).started);
}

TEST_F(StatusFile, AFullDiskIsNoticedAndTriedAgain) {
  std::filesystem::create_symlink("/dev/full", path_ / status_file(0));
  StatusLog log(path_, 0, 1);
  log.add(to_line(kStarted));
  EXPECT_FALSE(log.flush());
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_FALSE(log.flush());
}

TEST_F(StatusFile, TheLockIsHeldByOneAlone) {
  auto first = try_lock(folder_.get());
  ASSERT_TRUE(first);
  EXPECT_FALSE(try_lock(folder_.get()));
  first.reset();
  EXPECT_TRUE(try_lock(folder_.get()));
}

}  // namespace agent::program
