// Goal: a report file of any program is read whole, once, and bad lines harm nobody.
// Method: lines as programs write them, in a table; files that grow, in pieces, with monsters in between.
#include "agent/watch/report.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <fstream>

#include "spec/report_keys.h"
#include "tests/temporary_folder.h"

namespace agent::watch {
namespace {

Report good(std::string_view line) {
  const auto parsed = parse_report(line);
  if (const auto* bad = std::get_if<BadLine>(&parsed)) ADD_FAILURE() << line << ": " << bad->why;
  const auto* report = std::get_if<Report>(&parsed);
  return report != nullptr ? *report : Report{};
}
std::string bad(std::string_view line) {
  const auto parsed = parse_report(line);
  const auto* found = std::get_if<BadLine>(&parsed);
  return found != nullptr ? found->why : "";
}

TEST(ReportLine, EveryNumberOfAStepIsASeriesUnlessItsNameIsTaken) {
  const auto report =
      good(R"({"step":120,"loss":2.5,"validation/loss":2.75,"step_ms":12.5,"memory_bytes":1e9,"at_ms":7})");
  ReportedStep expected;
  expected.step = 120;
  expected.values = {{"loss", 2.5}, {"validation/loss", 2.75}};
  expected.step_ms = 12.5;
  expected.memory_bytes = 1'000'000'000;
  EXPECT_EQ(report.step, expected);
  EXPECT_EQ(report.at_ms, 7);
  EXPECT_EQ(report.complaint, "");
}

TEST(ReportLine, TheTypeTellsASeriesFromAFactOfTheSameName) {
  const auto report = good(R"({"step":1,"error":0.25,"status":3,"section":1,"config":2,"checkpoint":5})");
  ASSERT_TRUE(report.step);
  EXPECT_EQ(report.step->values.size(), 5u);
  EXPECT_FALSE(report.error || report.status || report.section || report.config || report.checkpoint);
}

TEST(ReportLine, EachFactIsRead) {
  EXPECT_EQ(good(R"({"total_steps":9000,"config":{"lr":0.5}})").total_steps, 9000);
  EXPECT_EQ(good(R"({"total_steps":9000,"config":{"lr":0.5}})").config, R"({"lr":0.5})");
  EXPECT_EQ(good(R"({"resumed":80})").resumed, 80);
  EXPECT_EQ(good(R"({"section":"evaluate"})").section, "evaluate");
  EXPECT_EQ(good(R"({"status":"downloading data"})").status, "downloading data");
  const auto saved = good(R"({"checkpoint":"ckpt/120","step":120,"bytes":1e9,"took_ms":1.5})");
  EXPECT_EQ(saved.checkpoint, (ReportedCheckpoint{"ckpt/120", 120, 1'000'000'000, 1.5}));
  EXPECT_FALSE(saved.step) << "a checkpoint's step is no step of training";
  EXPECT_TRUE(good(R"({"checkpoint":"ckpt/120","step":120,"loss":1})").step);
  EXPECT_EQ(good(R"({"error":{"type":"ValueError","message":"no","trace":"in f"}})").error,
            (ReportedError{"ValueError", "no", "in f"}));
  EXPECT_EQ(good(R"({"error":"no"})").error, (ReportedError{"", "no", ""}));
  const auto series = good(R"({"series":{"acc":{"unit":"%","better":"higher","over_ranks":"max"},"loss":{}}})").series;
  ASSERT_EQ(series.size(), 2u);
  EXPECT_EQ(series[0], (spec::Series{"acc", "%", spec::Better::kHigher, spec::OverRanks::kMax}));
  EXPECT_EQ(series[1], spec::undeclared_series("loss"));
}

TEST(ReportLine, WordsThatJsonDoesNotKnowAreNoNumbersButStayText) {
  const auto report = good(R"({"step":1,"a":NaN,"b":-Infinity,"c":Infinity,"d":null,"status":"NaN \" Infinity"})");
  ASSERT_TRUE(report.step);
  ASSERT_EQ(report.step->values.size(), 4u);
  for (const auto& [name, value] : report.step->values) EXPECT_TRUE(std::isnan(value)) << name;
  EXPECT_EQ(report.status, "NaN \" Infinity");
}

TEST(ReportLine, ALineThatIsWrongInAPartCountsInTheOthers) {
  struct {
    const char* line;
    const char* complaint;
  } const cases[] = {
      {R"({"loss":2.5,"status":"x"})", "\"loss\" has no \"step\""},
      {R"({"step":-1,"loss":2,"status":"x"})", "\"step\" is -1; expected a whole number of 0 or more"},
      {R"({"step":1.5,"status":"x"})", "\"step\" is 1.5"},
      {R"({"step":"7","status":"x"})", "\"step\" is string; expected number"},
      {R"({"step":1,"my loss":2,"status":"x"})", "\"my loss\" is no name of a series"},
      {R"({"checkpoint":"ckpt","status":"x"})", "\"checkpoint\" has no \"step\""},
      {R"({"section":["a"],"status":"x"})", "\"section\" is array; expected string"},
      {R"({"series":{"a":{"better":"more"}},"status":"x"})", "expected lower, higher or neither"},
      {R"({"series":{"a":{"over_ranks":"min"}},"status":"x"})", "expected mean, sum, max or rank0"},
  };
  for (const auto& one : cases) {
    const auto report = good(one.line);
    EXPECT_NE(report.complaint.find(one.complaint), std::string::npos) << one.line << ": " << report.complaint;
    EXPECT_EQ(report.status, "x") << one.line;
  }
  EXPECT_EQ(good(R"({"step":1,"note":"hello","flag":true,"list":[1]})").complaint, "") << "unknown keys are no fault";
}

TEST(ReportLine, WhatIsNoObjectIsABadLine) {
  for (const auto* line : {"loss 2.5", "[1]", "12", "{\"step\":1", "\"text\"", "{\"step\":1}}", "\x01\x02"}) {
    EXPECT_NE(bad(line).find("is no JSON object"), std::string::npos) << line;
  }
  EXPECT_NE(bad(std::string(spec::kMostReportLine, 'x')).find("over the limit of 65536"), std::string::npos);
  EXPECT_NE(bad("{\"config\":{\"a\":" + std::string(30'000, '[') + std::string(30'000, ']') + "}}").find("over 5000"),
            std::string::npos);
}

class Tail : public testing::Test {
 protected:
  void append(std::string_view text) { std::ofstream(file_, std::ios::app) << text; }
  static std::vector<std::int64_t> steps(const std::vector<Report>& reports) {
    std::vector<std::int64_t> out;
    for (const auto& report : reports) {
      if (report.step) out.push_back(report.step->step);
    }
    return out;
  }

  test::TemporaryFolder folder_;
  std::filesystem::path file_ = folder_.path() / "report";
};
using Steps = std::vector<std::int64_t>;

TEST_F(Tail, ReadsALineWhenItIsWholeAndOnce) {
  ReportTail tail(file_);
  EXPECT_TRUE(tail.read().reports.empty()) << "there is no file yet";
  append("{\"step\":1}\n{\"step\":");
  EXPECT_EQ(steps(tail.read().reports), Steps{1});
  EXPECT_TRUE(tail.read().reports.empty());
  append("2}\n\n{\"step\":3}");
  EXPECT_EQ(steps(tail.read().reports), Steps{2});
  EXPECT_EQ(steps(tail.read(true).reports), Steps{3}) << "no more will come after the program's end";
  EXPECT_EQ(tail.bad_lines(), 0u);
}

TEST_F(Tail, CountsBadLinesAndTellsOfTheFirst) {
  append("loss 2\n{\"step\":1}\n{\"loss\":1}\nmore\n");
  ReportTail tail(file_);
  EXPECT_EQ(steps(tail.read().reports), Steps{1});
  EXPECT_EQ(tail.bad_lines(), 3u);
  EXPECT_EQ(tail.first_complaint(), "line 1: \"loss 2\" is no JSON object");
}

TEST_F(Tail, SkipsALineOfTenMegabytesInBoundedPieces) {
  append("{\"step\":1}\n{\"text\":\"" + std::string(10 << 20, 'x') + "\"}\n{\"step\":2}\n");
  ReportTail tail(file_);
  Steps all;
  int reads = 0;
  for (auto before = tail.offset(); reads < 30; before = tail.offset(), ++reads) {
    const auto found = tail.read();
    const bool more = found.more;
    for (const auto step : steps(found.reports)) all.push_back(step);
    ASSERT_LE(tail.offset() - before, ReportTail::kMostAtOnce);
    if (!more) break;
  }
  EXPECT_EQ(all, (Steps{1, 2}));
  EXPECT_EQ(tail.bad_lines(), 1u);
}

TEST_F(Tail, ReadsAFloodInOrder) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "{\"step\":" + std::to_string(i) + ",\"loss\":1.5}\n";
  append(text);
  ReportTail tail(file_);
  std::int64_t next = 0;
  for (auto reports = tail.read().reports; !reports.empty(); reports = tail.read().reports) {
    for (const auto& report : reports) ASSERT_EQ(report.step->step, next++);
  }
  EXPECT_EQ(next, 100'000);
}

TEST_F(Tail, ReadsRegularFilesAlone) {
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  EXPECT_TRUE(ReportTail(file_).read().reports.empty()) << "and does not wait for a writer";
  EXPECT_TRUE(ReportTail(folder_.path()).read().reports.empty());
}

}  // namespace
}  // namespace agent::watch
