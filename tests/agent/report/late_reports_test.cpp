// Goal: what the agent of a rank could not tell any more is read from the report file, once and in bounded parts.
// Method: files that a test writes as a program would.
#include "agent/report/grpc_reports.h"

#include <gtest/gtest.h>

#include <fstream>
#include <vector>

#include "tests/temporary_folder.h"

namespace agent::report {
namespace {

using Heartbeats = std::vector<muster::v1::HeartbeatRequest>;

class LateReports : public testing::Test {
 protected:
  void append(std::string_view text) { std::ofstream(file_, std::ios::app) << text; }
  Heartbeats read(std::int64_t first_step = 0) {
    muster::v1::RankKey key;
    key.set_job_id(7);
    Heartbeats all;
    EXPECT_TRUE(read_reports_late(file_, key, first_step, [&](const auto& request) {
      all.push_back(request);
      return true;
    }));
    return all;
  }
  static std::vector<std::int64_t> steps(const Heartbeats& all) {
    std::vector<std::int64_t> out;
    for (const auto& request : all) {
      for (const auto& metric : request.metrics()) out.push_back(metric.step());
    }
    return out;
  }

  test::TemporaryFolder folder_;
  const std::filesystem::path file_ = folder_.path() / "rank-0.report.jsonl";
};

TEST_F(LateReports, HoldAllThatAnAgentWouldTell) {
  append(R"({"resumed":40}
{"total_steps":90,"status":"trains"}
{"step":41,"loss":2.5}
nonsense
{"checkpoint":"c41","step":41,"bytes":7}
{"section":"evaluate","error":"no data"})");
  const auto all = read();
  ASSERT_EQ(all.size(), 1u);
  const auto& one = all.front();
  EXPECT_EQ(one.key().job_id(), 7);
  EXPECT_EQ(one.resumed_from_step(), 40);
  EXPECT_EQ(one.step(), 41);
  EXPECT_EQ(one.section_name(), "evaluate");
  EXPECT_EQ(one.program().total_steps(), 90);
  EXPECT_EQ(one.program().status(), "trains");
  EXPECT_EQ(one.program().error().message(), "no data") << "the last line has no newline";
  EXPECT_EQ(one.program().bad_lines(), 1u);
  ASSERT_EQ(one.checkpoints_size(), 1);
  EXPECT_EQ(one.checkpoints(0).path(), "c41");
  EXPECT_EQ(steps(all), std::vector<std::int64_t>{41});
}

TEST_F(LateReports, BeginAtAStepAndSayWordsOnce) {
  append("{\"status\":\"trains\"}\n");
  for (int step = 1; step <= 2'000; ++step) append("{\"step\":" + std::to_string(step) + "}\n");
  const auto all = read(500);
  const auto told = steps(all);
  ASSERT_EQ(told.size(), 1'501u) << "a step may have two lines";
  EXPECT_EQ(told.front(), 500);
  EXPECT_EQ(told.back(), 2'000);
  int with_words = 0;
  for (const auto& request : all) {
    EXPECT_LE(request.metrics_size(), 512);
    with_words += request.has_program() ? 1 : 0;
  }
  EXPECT_EQ(with_words, 1);
}

TEST_F(LateReports, AreNothingWithoutAFile) {
  EXPECT_TRUE(read().empty());
}

TEST_F(LateReports, OfALargeFileTheEndIsRead) {
  const std::string filler = "{\"note\":\"" + std::string(60'000, 'x') + "\"}\n";
  append("{\"step\":1}\n");
  for (std::uint64_t bytes = 0; bytes <= kMostReadLate; bytes += filler.size()) append(filler);
  append("{\"step\":2}\n");
  const auto all = read();
  EXPECT_EQ(steps(all), std::vector<std::int64_t>{2});
  EXPECT_EQ(all.back().program().bad_lines(), 0u) << "the line that was cut is none";
  const auto trouble = [](const Heartbeats& told) {
    std::string newest;
    for (const auto& one : told) {
      if (one.has_program()) newest = one.program().source_trouble();
    }
    return newest;
  };
  EXPECT_NE(trouble(all).find("older steps may be missing"), std::string::npos);
  EXPECT_EQ(trouble(read(1)), "") << "the steps before were told already";
}

TEST_F(LateReports, EndWhenTheReaderHasHeardEnough) {
  append("{\"step\":1}\n");
  EXPECT_FALSE(read_reports_late(file_, {}, 0, [](const auto&) { return false; }));
}

}  // namespace
}  // namespace agent::report
