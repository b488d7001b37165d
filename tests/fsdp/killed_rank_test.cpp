// Goal: when a rank is killed in a collective, or while ranks meet, each other rank soon gets an error that names it,
// nothing of the killed rank is left, and the next mesh works.
// Method: three processes that share memory or have sockets, one of which ends by SIGKILL. Their timeout is half a
// minute, so an error within two seconds is due to the death.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/fsdp/temporary_folder.h"
#include "tests/places.h"

namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr int kRanks = 3;

FILE* start(const std::string& arguments, int rank, const std::filesystem::path& store) {
  const std::string command = ::test::built_program("fsdp_killed_rank") + " " + arguments + " " + std::to_string(rank) +
                              " " + std::to_string(kRanks) + " '" + store.native() + "' 2>&1";
  return ::popen(command.c_str(), "re");
}

std::string output_of(FILE* process) {
  std::string text;
  std::array<char, 4096> part{};
  while (const std::size_t got = std::fread(part.data(), 1, part.size(), process)) text.append(part.data(), got);
  ::pclose(process);
  return text;
}

/// Outputs of the ranks that are left.
std::vector<std::string> outputs(const std::string& what, int killed) {
  const std::string arguments = what + " " + std::to_string(killed);
  const TemporaryFolder folder;
  std::vector<FILE*> processes;
  for (int rank = 0; rank < kRanks; ++rank) processes.push_back(start(arguments, rank, folder.path() / "store"));
  std::vector<std::string> texts;
  for (FILE* process : processes) texts.push_back(output_of(process));
  texts.erase(texts.begin() + killed);
  return texts;
}

void expect_told(const std::string& collective, const std::string& text, const std::string& when, int killed = 1) {
  const std::string number = std::to_string(killed);
  for (const std::string how : {"shared", "sockets"}) {
    for (const std::string& output : outputs(how + " " + collective + " " + when, killed)) {
      SCOPED_TRACE(how + ": " + output);
      EXPECT_THAT(output,
                  ContainsRegex("^[01]\\.[0-9]+ s, 0 files left: " + text + " on rank [012] with rank [012] failed"));
      EXPECT_THAT(output, ContainsRegex("rank " + number + "('s| is gone:) process [0-9]+ .*has ended"));
      EXPECT_THAT(output, HasSubstr("then 2 ranks"));
    }
  }
}

TEST(KilledRank, InAnAllGather) {
  expect_told("all-gather", "all-gather of unit", "before");
  expect_told("all-gather", "all-gather of unit", "between");
}

// Rank 0 is the one that all watchers talk to.
TEST(KilledRank, MayBeRankZero) {
  expect_told("all-gather", "all-gather of unit", "between", /*killed=*/0);
  expect_told("barrier", "barrier", "before", /*killed=*/0);
}

TEST(KilledRank, InAReduceScatter) {
  expect_told("reduce-scatter", "reduce-scatter of unit", "before");
  expect_told("reduce-scatter", "reduce-scatter of unit", "between");
}

TEST(KilledRank, InAnAllReduce) {
  expect_told("small-all-reduce", "all-reduce of unit", "before");
  expect_told("large-all-reduce", "all-reduce of unit", "before");
  expect_told("large-all-reduce", "all-reduce('s gather)? of unit", "between");
  expect_told("maximum", "all-reduce's maximum", "before");
}

// The ranks that are left once waited for five minutes here, without a word.
TEST(KilledRank, WhileTheRanksMeet) {
  for (const std::string how : {"shared", "sockets"}) {
    for (const int killed : {0, 1, 2}) {
      for (const std::string& output : outputs(how + " - meeting", killed)) {
        SCOPED_TRACE(how + ", rank " + std::to_string(killed) + ": " + output);
        EXPECT_THAT(output, ContainsRegex("^[0-9]\\.[0-9]+ s: meeting of the ranks: rank [012] is gone: "));
        if (killed != 0) continue;
        EXPECT_THAT(output, ContainsRegex("rank 0 is gone: process [0-9]+ on .* has ended"));
      }
    }
  }
}

TEST(KilledRank, InABroadcastOrABarrier) {
  expect_told("broadcast", "broadcast of rank 0", "before");
  expect_told("barrier", "barrier", "before");
}

}  // namespace
