// Goal: the patterns of a job find steps and numbers in any log, also in progress bars, and no log harms the agent.
// Method: texts as programs write them, in pieces; logs that grow in a temporary folder, with the time as the test
// says.
#include "agent/watch/log_watch.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <fstream>
#include <optional>
#include <utility>

#include "tests/temporary_folder.h"

namespace agent::watch {
namespace {

using Lines = std::vector<std::string>;
using Patterns = std::map<std::string, std::string>;

const Patterns kLoss{{"loss", R"(loss[ =]([\d.]+))"}};
const Patterns kStepAndLoss{{"loss", R"(loss[ =]([\d.]+))"}, {"step", R"(step (\d+))"}};

/// "3 loss=2.5": the step, and its values.
std::string text_of(const Report& report) {
  std::string text = std::to_string(report.step->step);
  for (const auto& [name, value] : report.step->values) {
    char number[32];
    std::snprintf(number, sizeof number, "%g", value);
    text += " " + name + "=" + number;
  }
  return text;
}

Lines lines_of(const std::vector<std::string>& pieces) {
  PlainLines cutter;
  Lines lines;
  const auto take = [&](std::string_view line) { lines.emplace_back(line); };
  for (const auto& piece : pieces) cutter.feed(piece, take);
  cutter.finish(take);
  return lines;
}

TEST(PlainLinesOfALog, EachStateOfAProgressBarIsALine) {
  EXPECT_EQ(lines_of({"a\r\nb\rc\r", "\nd\b\b\be\n\n"}), (Lines{"a", "b", "c", "d", "e"}));
}

TEST(PlainLinesOfALog, ColoursAndTitlesAreLeftOutWhereverAReadCutsThem) {
  const std::string text = "\x1b[1;32mstep 3\x1b[0m \x1b]0;title\aloss \x1b[A2.5\x1b]8;;x\x1b\\!\n";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(lines_of({text.substr(0, cut), text.substr(cut)}), (Lines{"step 3 loss 2.5!"})) << cut;
  }
  EXPECT_EQ(lines_of({"\x1b[31", "\nnext"}), (Lines{"next"})) << "a command ends with its line";
  EXPECT_EQ(lines_of({"\x1b]" + std::string(5'000, 'x') + "y"}).size(), 1u) << "no title is that long";
}

TEST(PlainLinesOfALog, ALongLineKeepsItsBeginning) {
  const auto lines = lines_of({std::string(1 << 20, 'x'), "\nnext\n"});
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].size(), PlainLines::kLongest);
  EXPECT_EQ(lines[1], "next");
}

Lines reports_of(const Patterns& patterns, const Lines& lines) {
  LogReports reader(patterns);
  Lines out;
  for (const auto& line : lines) {
    if (const auto report = reader.take(line)) out.push_back(text_of(*report));
  }
  return out;
}

TEST(LogReportsOfLines, TheStepIsThatOfItsLineAndOfTheLinesBehindIt) {
  const auto patterns = [] {
    auto all = kStepAndLoss;
    all["acc"] = R"(acc ([\d.]+))";
    return all;
  }();
  EXPECT_EQ(reports_of(patterns, {"initial loss 9", "loss 2.5 at step 3", "acc 0.5", "loss 7", "step 4", "loss 2.25",
                                  "nothing", "step 5 loss 2, acc 1"}),
            (Lines{"3 loss=2.5", "3 acc=0.5", "4", "4 loss=2.25", "5 acc=1 loss=2"}))
      << "of two values of one step the first counts; before the first step there is none";
}

TEST(LogReportsOfLines, WithoutAStepPatternAStepEndsWhereASeriesComesAgain) {
  const Patterns patterns{{"loss", R"(^loss ([\d.]+))"}, {"acc", R"(acc ([\d.]+))"}};
  EXPECT_EQ(reports_of(patterns, {"loss 3", "acc 0.1", "loss 2", "loss 1 acc 0.3"}),
            (Lines{"1 loss=3", "1 acc=0.1", "2 loss=2", "3 acc=0.3 loss=1"}));
}

TEST(LogReportsOfLines, ABarThatShowsOneStepManyTimesTellsItOnce) {
  EXPECT_EQ(reports_of(kStepAndLoss, {"step 1 loss 2", "step 1 loss 2", "step 1 loss=1.9", "step 2"}),
            (Lines{"1 loss=2", "2"}));
}

TEST(LogReportsOfLines, NumbersAreReadAsPeopleAndProgramsWriteThem) {
  struct {
    const char* text;
    const char* report;
  } const cases[] = {{"x 1e-4", "1 x=0.0001"}, {"x +2.5.", "1 x=2.5"}, {"x 31.5%", "1 x=31.5"}, {"x -1,", "1 x=-1"},
                     {"x nan", "1 x=nan"},     {"x -inf", "1 x=nan"},  {"x 1e999", "1 x=nan"}};
  for (const auto& one : cases) EXPECT_EQ(reports_of({{"x", R"(x (\S+))"}}, {one.text}), Lines{one.report}) << one.text;
  EXPECT_EQ(reports_of({{"step", R"(it ([\d,_.]+))"}}, {"it 1,200", "it 1_201", "it 1202.0"}),
            (Lines{"1200", "1201", "1202"}));
}

TEST(LogReportsOfLines, NumbersOfPeoplesTrainersAreRead) {
  struct {
    const char* text;
    double number;
  } const cases[] = {{"2.3100,", 2.31},
                     {"tensor(2.3100,", 2.31},
                     {"tensor([0.5])", 0.5},
                     {"[0.25]", 0.25},
                     {"'1.5'", 1.5},
                     {"1,234.5", 1234.5},
                     {"1,234,567", 1234567},
                     {"12_000", 12000},
                     {"1.2k", 1200},
                     {"350M", 3.5e8},
                     {"2.3G", 2.3e9},
                     {"85.2%)", 85.2},
                     {"\xe2\x88\x92"
                      "0.5",
                      -0.5},
                     {"-1,234", -1234},
                     {"1E-04", 1e-4},
                     {"2.", 2}};
  for (const auto& one : cases) {
    const auto found = plain_number(one.text);
    ASSERT_TRUE(found) << one.text;
    EXPECT_DOUBLE_EQ(*found, one.number) << one.text;
  }
  for (const auto* text : {"2,31", "0,310", "1,23,456", "12,3456", "1-2", "0.3s", "3ms", "512B", "", "loss", "1.2.3"}) {
    EXPECT_FALSE(plain_number(text)) << text << " has another meaning, or may have";
  }
  EXPECT_EQ(plain_count("120/9000"), 120);
  EXPECT_EQ(plain_count("[120/9000]"), 120);
  EXPECT_EQ(plain_count("10k"), 10000);
  EXPECT_EQ(plain_count("1,234,567"), 1234567);
  EXPECT_EQ(plain_count("1,200/9,000"), 1200);
  EXPECT_EQ(plain_count("12_000,"), 12000);
  for (const auto* text : {"1,5", "1,50", "0,120", "12,34", "1234,567", "1,23,456", "1.5", "1,234.5"}) {
    EXPECT_EQ(plain_count(text), std::nullopt) << text;
  }
  EXPECT_EQ(plain_count("-3"), std::nullopt);
}

TEST(LogReportsOfLines, AResumeAndTheNumberOfStepsAreTold) {
  LogReports reader({{"resumed", R"(resuming from step (\d+))"},
                     {"total", R"(/([\d,]+))"},
                     {"step", R"(step (\d+))"},
                     {"loss", R"(loss (\S+))"}});
  const auto resumed = reader.take("resuming from step 20");
  ASSERT_TRUE(resumed);
  EXPECT_EQ(resumed->resumed, 20);
  const auto first = reader.take("step 21/9,000 loss 2");
  ASSERT_TRUE(first && first->step);
  EXPECT_EQ(first->total_steps, 9000);
  EXPECT_EQ(first->step->step, 21);
  const auto again = reader.take("step 22/9,000 loss 1, resuming from step 7");
  ASSERT_TRUE(again && again->step);
  EXPECT_FALSE(again->resumed || again->total_steps) << "once";
  EXPECT_EQ(reader.unmatched(), "");
}

TEST(LogReportsOfLines, StepsThatAreCountedGoOnFromAResume) {
  LogReports reader({{"resumed", R"(from (\d+))"}, {"loss", R"(loss (\S+))"}, {"total", R"(of (\d+))"}});
  EXPECT_EQ(reader.unmatched(), "loss, total") << "a first attempt says nothing of a resume";
  reader.take("from 20");
  EXPECT_EQ(reader.take("loss 2")->step->step, 21);
}

TEST(LogReportsOfLines, WhatIsNoNumberIsToldOnce) {
  LogReports reader({{"loss", R"(loss (\S+))"}, {"step", R"(step (\S+))"}});
  EXPECT_FALSE(reader.take("loss function: cross entropy"));
  EXPECT_FALSE(reader.take("step by"));
  EXPECT_EQ(reader.first_complaint(), "report.log.loss finds \"function:\" in the log, which is no number");
}

class Log : public testing::Test {
 protected:
  void append(std::string_view text) { std::ofstream(file_, std::ios::app) << text; }
  Found look(LogWatch& watch, std::int64_t wall_ms = 1'000, bool ended = false) {
    Moment moment;
    moment.wall_ms = wall_ms;
    if (ended) moment.end.emplace();
    return watch.look(moment);
  }
  static Lines texts(const Found& found) {
    Lines out;
    for (const auto& report : found.reports) out.push_back(text_of(report));
    return out;
  }

  test::TemporaryFolder folder_;
  std::filesystem::path file_ = folder_.path() / "rank-0.log";
};

TEST_F(Log, IsReadOnceAndALastLineWithoutAnEndAtTheEnd) {
  LogWatch watch(file_, kStepAndLoss);
  EXPECT_TRUE(look(watch).reports.empty()) << "there is no file yet";
  append("step 1 loss 2\nstep 2 lo");
  EXPECT_EQ(texts(look(watch)), Lines{"1 loss=2"});
  append("ss 1.5\n\rstep 3 loss 1");
  EXPECT_EQ(texts(look(watch)), Lines{"2 loss=1.5"});
  EXPECT_EQ(texts(look(watch, 1'000, true)), Lines{"3 loss=1"});
  const auto last = look(watch, 1'000, true);
  EXPECT_TRUE(last.reports.empty());
  EXPECT_FALSE(last.more);
  EXPECT_EQ(watch.take_complaint(), "");
}

TEST_F(Log, StepsThatCameBetweenTwoLooksAreSpreadOverTheTimeBetween) {
  LogWatch watch(file_, kLoss);
  append("loss 9\n");
  EXPECT_EQ(look(watch, 10'000).reports.at(0).at_ms, 10'000);
  append("loss 8\nloss 7\nloss 6\nloss 5\n");
  const auto reports = look(watch, 12'000).reports;
  ASSERT_EQ(reports.size(), 4u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(reports[static_cast<std::size_t>(i)].at_ms, 10'500 + 500 * i);
}

/// The pace that is told while a step takes `step_ms` and a look comes every `look_ms`.
std::vector<double> paces(int step_ms, int look_ms, int looks) {
  StepPace pace;
  std::vector<double> told;
  std::int64_t last = 0;
  for (int look = 1; look <= looks; ++look) {
    const auto now = std::int64_t{look} * look_ms;
    const auto newest = now / step_ms;
    const bool is_new = std::exchange(last, newest) != newest;
    told.push_back(pace.look(1'000'000 + now, is_new ? std::optional(newest) : std::nullopt));
  }
  return told;
}

TEST(StepPaces, AreThoseOfManyStepsAndNothingBelowALookIsTold) {
  const auto quick = paces(160, 200, 200);
  EXPECT_EQ(quick[5], 0) << "one look is longer than a step";
  for (std::size_t look = 50; look < quick.size(); ++look) EXPECT_NEAR(quick[look], 160, 10) << look;
  const auto slow = paces(9'000, 2'000, 200);
  EXPECT_EQ(slow[10], 0);
  for (std::size_t look = 60; look < slow.size(); ++look) EXPECT_NEAR(slow[look], 9'000, 900) << look;
  const auto many = paces(2, 100, 100);
  for (std::size_t look = 40; look < many.size(); ++look) EXPECT_NEAR(many[look], 2, 0.1) << look;
}

TEST(StepPaces, HoldNoPauseBetweenTwoSteps) {
  StepPace pace;
  std::int64_t last = 0, told_anew = 0;
  double before = 0;
  // Steps of 150 ms, a line each five steps, a minute's evaluation after each 100 steps, and a look each 200 ms.
  for (std::int64_t now = 200; now < 400'000; now += 200) {
    constexpr std::int64_t kRound = 15'000 + 60'000;
    const auto newest = (now / kRound * 100 + std::min<std::int64_t>(now % kRound, 15'000) / 150) / 5 * 5;
    const bool is_new = std::exchange(last, newest) != newest;
    const auto told = pace.look(1'000'000 + now, is_new ? std::optional(newest) : std::nullopt);
    if (told > 0) {
      EXPECT_NEAR(told, 150, 20) << now;
    }
    if (std::exchange(before, told) != told) ++told_anew;
  }
  EXPECT_GT(told_anew, 10) << "the pace goes on being measured";
}

// Looks become rare where nothing comes, so a time counts over many of them, and two pauses may be among them.
TEST(StepPaces, HoldNoneOfSeveralPauses) {
  StepPace pace;
  std::int64_t now = 1'000'000, step = 0;
  const auto train = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      const auto told = pace.look(now += 500, step += 10);
      if (told > 0) {
        EXPECT_NEAR(told, 50, 10) << step;
      }
    }
  };
  train(30);
  for (int evaluation = 0; evaluation < 6; ++evaluation) {
    for (int look = 0; look < 14; ++look) pace.look(now += 5'000, std::nullopt);
    train(10);
  }
  train(300);
}

TEST(StepPaces, FollowStepsThatBecomeSlower) {
  StepPace pace;
  double told = 0;
  for (std::int64_t step = 1; step <= 100; ++step) told = pace.look(1'000'000 + step * 200, step);
  EXPECT_NEAR(told, 200, 20);
  std::int64_t now = 1'020'000;
  for (std::int64_t step = 101; step <= 110; ++step) {
    for (int look = 0; look < 15; ++look) told = pace.look(now += 200, look == 14 ? std::optional(step) : std::nullopt);
  }
  EXPECT_NEAR(told, 3'000, 300);
}

TEST_F(Log, TheTimeOfAStepIsToldOnlyWhenItIsKnown) {
  LogWatch watch(file_, kStepAndLoss);
  append("step 1 loss 9\nstep 2 loss 8\n");
  for (const auto& report : look(watch, 10'000).reports) EXPECT_EQ(report.step->step_ms, 0);
  for (int i = 0; i < 30; ++i) {
    append("step " + std::to_string(3 + i) + " loss 1\n");
    const auto reports = look(watch, 10'200 + 200 * i).reports;
    ASSERT_EQ(reports.size(), 1u);
    if (i > 20) {
      EXPECT_NEAR(*reports[0].step->step_ms, 200, 1);
    }
  }
}

TEST_F(Log, AFloodIsReadWholeInBoundedPieces) {
  LogWatch watch(file_, kStepAndLoss);
  std::string text;
  std::int64_t lines = 0;
  for (; text.size() < 6 << 20; ++lines) text += "step " + std::to_string(lines + 1) + " loss 1\n";
  append(text);
  EXPECT_EQ(watch.unread(), "");
  std::int64_t newest = 0;
  for (bool more = true; more;) {
    const auto found = look(watch);
    ASSERT_LE(found.reports.size(), LogWatch::kMostAtOnce / 14);
    for (const auto& report : found.reports) ASSERT_EQ(report.step->step, ++newest);
    more = found.more;
    ASSERT_EQ(watch.unread().empty(), !more);
  }
  EXPECT_EQ(newest, lines);
  EXPECT_EQ(watch.take_complaint(), "");
}

TEST_F(Log, WhatWaitsToBeReadIsKnown) {
  LogWatch watch(file_, kLoss);
  append(std::string(LogWatch::kMostAtOnce + 7, 'x'));
  look(watch);
  EXPECT_EQ(watch.unread(), "the last 7 bytes of the log");
}

TEST_F(Log, ThatIsNoRegularFileIsNotWaitedFor) {
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  LogWatch watch(file_, kLoss);
  EXPECT_TRUE(look(watch).reports.empty());
}

TEST_F(Log, ThatIsEmptiedIsReadFromItsNewBeginning) {
  LogWatch watch(file_, kLoss);
  append("loss 9\nloss 8\n");
  look(watch);
  std::ofstream(file_, std::ios::trunc) << "loss 1\n";
  look(watch);
  EXPECT_EQ(texts(look(watch)), Lines{"3 loss=1"});
}

}  // namespace
}  // namespace agent::watch
