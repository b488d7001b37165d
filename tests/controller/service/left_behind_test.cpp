// Goal: what a program has reported is known whole, whether its agent goes on telling after the end or not, and nothing
// is said to be missing that comes.
// Method: the controller on a bench, an agent's stream without a network, report files in real folders.
#include <gmock/gmock.h>

#include <fstream>

#include "agent/report/grpc_reports.h"
#include "agent/watch/agent_files.h"
#include "tests/controller/service/bench.h"

namespace service::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kMayBeMissing = "older steps may be missing";

/// A command of two ranks. Each has an agent, of which rank 0's has told three steps.
class LeftBehind : public ::testing::Test {
 protected:
  LeftBehind() {
    for (core::RankNumber rank = 0; rank < 2; ++rank) agents.push_back(open(rank));
    tell(0, with_rows(0, 0, 3));
    tell(1, Bench::beat({id, 1}, 1));
    bench.tick();
  }
  std::shared_ptr<ranks::RankStream> open(core::RankNumber rank) {
    auto opened = bench.controller().open_stream(Bench::beat({id, 1}, rank).key(), bench.token({id, 1}),
                                                 [](const muster::v1::BeatResponse&) {});
    EXPECT_TRUE(opened.ok());
    return opened.ok() ? opened.value() : nullptr;
  }
  void tell(core::RankNumber rank, const muster::v1::HeartbeatRequest& request) {
    const auto heard = agents[rank]->beat(request);
    ASSERT_TRUE(heard.ok());
    if (heard.value()) agents[rank]->work();
    bench.controller().tick();
  }
  /// Steps `first` + 1 to `first` + `rows`.
  muster::v1::HeartbeatRequest with_rows(core::RankNumber rank, std::uint64_t first, int rows) const {
    auto request = Bench::beat({id, 1}, rank, static_cast<core::Step>(first) + rows);
    request.set_first_metric(first);
    for (int i = 1; i <= rows; ++i) request.add_metrics()->set_step(static_cast<core::Step>(first) + i);
    return request;
  }
  muster::v1::HeartbeatRequest leaving(core::RankNumber rank, core::Step step, bool blind) const {
    auto request = Bench::beat({id, 1}, rank, step);
    request.set_leaving(true);
    request.set_exit_code(1);
    request.set_blind(blind);
    return request;
  }
  std::filesystem::path report(core::RankNumber rank) {
    const auto folder = bench.folder() / "jobs" / std::to_string(id) / "attempt-1" / "logs";
    std::filesystem::create_directories(folder);
    return agent::watch::rank_files(folder, rank).report;
  }
  void write(core::RankNumber rank, int first, int last) {
    std::ofstream lines(report(rank), std::ios::app);
    for (int step = first; step <= last; ++step) lines << "{\"step\":" << step << ",\"loss\":1}\n";
  }
  /// So long that musterd reads the end of the file alone, and that step 4 is not in it.
  int write_long(core::RankNumber rank) {
    constexpr int kLine = 1000;
    constexpr int kLast = static_cast<int>(agent::report::kMostReadLate) / kLine + 1000;
    std::ofstream lines(report(rank), std::ios::app);
    for (int step = 1; step <= kLast; ++step) {
      const auto words = "{\"step\":" + std::to_string(step) + ",\"loss\":1";
      lines << words << std::string(kLine - words.size() - 2, ' ') << "}\n";
    }
    return kLast;
  }
  void end_all() {
    bench.executor().end_all({id, 1}, {1, 0});
    bench.tick();
    ASSERT_EQ(bench.state(id), "failed");
  }
  core::Step newest_row() {
    const auto rows = bench.controller().metrics(id, 1, 0, 0, 1'000'000);
    return rows.empty() ? 0 : rows.back().step();
  }
  std::size_t rows() { return bench.controller().metrics(id, 1, 0, 0, 1'000'000).size(); }

  static muster::v1::SubmitRequest request() {
    auto request = command_request("a", 2);
    request.mutable_spec()->mutable_requeue()->set_max_failed(0);
    return request;
  }

  Bench bench;
  const core::JobId id = bench.submit(request());
  std::vector<std::shared_ptr<ranks::RankStream>> agents;
};

TEST_F(LeftBehind, ARowThatAnAgentTellsAfterTheEndIsStored) {
  end_all();
  tell(0, with_rows(0, 3, 4));
  bench.pass(1s);
  EXPECT_EQ(rows(), 7U);
}

TEST_F(LeftBehind, FilesAreReadAgainOnceTheAgentsHaveGone) {
  write(0, 1, 6);
  end_all();
  EXPECT_EQ(rows(), 6U) << "at the end, all that stands in the file";
  write(0, 7, 9);
  bench.pass(5s);
  EXPECT_EQ(rows(), 6U) << "rank 0's agent may tell that";
  for (const auto& agent : agents) agent->close();
  bench.pass(2s);
  EXPECT_EQ(rows(), 9U) << "rank 0's agent was killed before it could tell that";
}

TEST_F(LeftBehind, AnAgentThatHasToldAllLeavesNothingToRead) {
  end_all();
  tell(0, leaving(0, 3, false));
  write(0, 4, 9);  // not by the program: the agent has read its file to the end
  for (const auto& agent : agents) agent->close();
  bench.pass(3s);
  EXPECT_EQ(rows(), 3U);
}

TEST_F(LeftBehind, AFileThatItsAgentHasNotToldToTheEndIsReadThoughTheAgentHasLeft) {
  end_all();
  write(0, 1, 9);
  tell(0, leaving(0, 3, true));
  bench.pass(2s);
  EXPECT_EQ(rows(), 9U);
}

TEST_F(LeftBehind, AFileThatItsAgentHasNotToldToTheEndIsReadAgainWhenTheDiskHasRoom) {
  write(0, 1, 9);
  tell(0, leaving(0, 3, true));
  bench.memory().fail_writes(store::Error(store::Error::Kind::kFull, "the disk is full; make room"));
  bench.executor().end_all({id, 1}, {1, 0});
  bench.pass(5s);
  bench.memory().fail_writes(std::nullopt);
  bench.pass(10s);
  EXPECT_EQ(bench.state(id), "failed");
  EXPECT_EQ(rows(), 9U);
}

TEST_F(LeftBehind, NothingIsSaidToBeMissingWhileAnAgentTells) {
  const auto last = write_long(0);
  end_all();
  EXPECT_EQ(newest_row(), last);
  EXPECT_THAT(bench.job(id).notes(), ElementsAre());
  tell(0, leaving(0, 3, false));
  for (const auto& agent : agents) agent->close();
  bench.pass(3s);
  EXPECT_THAT(bench.job(id).notes(), ElementsAre()) << "the agent has told all";
}

TEST_F(LeftBehind, StepsMayBeMissingOfALongFileWhoseAgentWasKilled) {
  write_long(0);
  end_all();
  for (const auto& agent : agents) agent->close();
  bench.pass(3s);
  EXPECT_THAT(bench.job(id).notes(), ElementsAre(HasSubstr(kMayBeMissing)));
}

TEST_F(LeftBehind, WhatAnAgentHadToLeaveOutIsANoteThoughTheJobIsOver) {
  end_all();
  auto words = leaving(1, 3, false);
  words.mutable_program()->set_source_trouble("the controller took reports too slowly, so 3 reports were not told");
  tell(1, words);
  EXPECT_THAT(bench.job(id).notes(),
              ElementsAre("rank 1: the controller took reports too slowly, so 3 reports were not told"));
}

}  // namespace
}  // namespace service::testing
