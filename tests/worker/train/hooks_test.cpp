// Goal: what watches a training says and keeps what it should, also after a resume.
// Method: each hook alone with made reports and a clock of the test; event files are read back by muster's own reader.
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

#include "agent/watch/tensorboard_watch.h"
#include "base/usage_error.h"
#include "tests/worker/temporary_folder.h"
#include "worker/train/hooks/hooks.h"

namespace worker::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

agent::rank::StepReport report_of(std::int64_t step, std::vector<agent::rank::SeriesValue> values) {
  agent::rank::StepReport report;
  report.step = step;
  report.values = std::move(values);
  report.at_ms = 1'764'000'000'250 + step;
  return report;
}

const spec::Series kLoss{.name = "validation/loss", .better = spec::Better::kLower};
const spec::Series kAccuracy{.name = "validation/accuracy", .better = spec::Better::kHigher};

/// Why a training with these values of evaluations ends, and after how many of them.
std::pair<std::size_t, std::string> ended(const spec::Series& series, const std::vector<double>& values,
                                          std::int64_t patience, double least = 0) {
  EarlyStop hook(series, patience, least);
  for (std::size_t i = 0; i < values.size(); ++i) {
    hook.step(report_of(static_cast<std::int64_t>(i + 1), {{"loss", 1}, {series.name, values[i]}}), true);
    hook.step(report_of(static_cast<std::int64_t>(i + 1), {{"loss", 1}}), false);
    if (const auto why = hook.wants_stop(); !why.empty()) return {i + 1, why};
  }
  return {0, ""};
}

TEST(EarlyStop, EndsAfterSoManyEvaluationsWithoutABetterValue) {
  EXPECT_EQ(ended(kLoss, {3, 2, 2.5, 1.9, 2, 2}, 2),
            (std::pair<std::size_t, std::string>{6,
                                                 "stopped early: 2 validations in a row have found nothing better than "
                                                 "1.9 at step 4 (validation/loss)"}));
  EXPECT_EQ(ended(kLoss, {3, 2, 2.5, 1.9, 2, 2}, 3).first, 0U);
  EXPECT_EQ(ended(kAccuracy, {0.1, 0.2, 0.2, 0.15}, 2).first, 4U);
  EXPECT_EQ(ended(kLoss, {3, 2.95, 2.9}, 2, 0.2),
            (std::pair<std::size_t, std::string>{3,
                                                 "stopped early: 2 validations in a row have found nothing more than "
                                                 "0.2 better than 3 at step 1 (validation/loss)"}))
      << "better by too little";
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(ended(kLoss, {nan, nan}, 2).second, HasSubstr("2 validations have found no value"));
}

TEST(EarlyStop, GoesOnCountingAfterAResume) {
  EarlyStop first(kLoss, 2, 0);
  first.step(report_of(1, {{"validation/loss", 1}}), true);
  first.step(report_of(2, {{"validation/loss", 2}}), true);
  fsdp::Json extra;
  first.save(extra);
  EarlyStop second(kLoss, 2, 0);
  second.load(fsdp::Json::parse(extra.dump()));
  EXPECT_THAT(second.wants_stop(), IsEmpty());
  second.step(report_of(3, {{"validation/loss", 1.5}}), true);
  EXPECT_THAT(second.wants_stop(), HasSubstr("nothing better than 1 at step 1"));
  EarlyStop of_another(kAccuracy, 1, 0);
  of_another.load(extra);
  EXPECT_THAT(of_another.wants_stop(), IsEmpty()) << "the count is of another series";
}

TEST(Progress, TellsHowFarTheTrainingIsAndHowLongItTakes) {
  std::vector<std::string> said;
  Progress::Clock::time_point now{};
  Progress progress({.steps = 400,
                     .epochs_a_step = 0.01,
                     .say = [&](const std::string& line) { said.push_back(line); },
                     .now = [&] { return now; }});
  for (std::int64_t step = 11; step <= 400; ++step) {
    progress.step(report_of(step, {}), false);
    now += std::chrono::seconds(1);
  }
  ASSERT_FALSE(said.empty());
  EXPECT_EQ(said.front(), "10 % of 400 steps, epoch 0.41, about 5m59s left");
  EXPECT_THAT(said, SizeIs(12)) << "each 30 s, and not at the end";
  EXPECT_EQ(time_text(std::chrono::seconds(59)), "59s");
  EXPECT_EQ(time_text(std::chrono::seconds(7500)), "2h05m");
}

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().native().starts_with("events.out.tfevents.")) files.push_back(entry.path());
  }
  return files;
}

TEST(LogFiles, HoldEveryStepOnceAsJsonLinesAndForTensorBoard) {
  const TemporaryFolder folder;
  const auto silent = [](const std::string& line) { ADD_FAILURE() << line; };
  {
    LogFiles first(folder / "log", 1, silent);
    first.began(0);
    for (std::int64_t step = 1; step <= 3; ++step)
      first.step(report_of(step, {{"loss", 0.5 * static_cast<double>(step)}}), false);
  }
  {
    std::ofstream torn(folder / "log/metrics.jsonl", std::ios::app);
    torn << R"({"step": 4, "val)";
  }
  LogFiles second(folder / "log", 2, silent);
  second.began(2);
  second.step(report_of(3, {{"loss", 9}, {"validation/loss", std::numeric_limits<double>::quiet_NaN()}}), true);

  std::istringstream lines(text_of(folder / "log/metrics.jsonl"));
  std::vector<std::pair<std::int64_t, double>> losses;
  for (std::string line; std::getline(lines, line);) {
    const auto json = fsdp::Json::parse(line);
    losses.emplace_back(json.at("step").as_int(), json.at("values").at("loss").as_double());
    EXPECT_GT(json.at("time").as_double(), 1.7e9);
    if (const auto* value = json.at("values").find("validation/loss")) {
      EXPECT_TRUE(value->is_null());
    }
  }
  EXPECT_THAT(losses, ElementsAre(std::pair{1, 0.5}, std::pair{2, 1.0}, std::pair{3, 9.0}));

  std::vector<agent::watch::ScalarEvent> events;
  for (const auto& file : event_files(folder / "log")) {
    const std::string bytes = text_of(file);
    const auto read = agent::watch::read_events(bytes);
    EXPECT_EQ(read.taken, bytes.size());
    EXPECT_EQ(read.problem, "");
    EXPECT_EQ(read.bad_records, 0U);
    events.insert(events.end(), read.events.begin(), read.events.end());
  }
  EXPECT_THAT(events, SizeIs(4));
  const auto second_step = std::ranges::find(events, 2, &agent::watch::ScalarEvent::step);
  ASSERT_NE(second_step, events.end());
  EXPECT_THAT(second_step->values, ElementsAre(std::pair<std::string, double>{"loss", 1.0}));
  EXPECT_EQ(second_step->at_ms, 1'764'000'000'252);
}

TEST(LogFiles, AFolderThatCannotBeIsRefusedAndADiskThatFailsIsAWarning) {
  const TemporaryFolder folder;
  write_file(folder / "file", "");
  EXPECT_THAT(message_of<base::UsageError>([&] { LogFiles(folder / "file/log", 1, {}); }),
              HasSubstr("train.log_folder = \"" + (folder / "file/log").native() + "\": "));
  std::vector<std::string> said;
  LogFiles hook(folder / "log", 1, [&](const std::string& line) { said.push_back(line); });
  std::filesystem::remove_all(folder / "log");
  write_file(folder / "log", "");
  try {
    hook.began(0);
  } catch (const std::exception&) {
    FAIL() << "a log costs no training";
  }
  hook.step(report_of(1, {{"loss", 1}}), false);
  EXPECT_THAT(said, ElementsAre(HasSubstr("takes no more lines")));
}

}  // namespace
}  // namespace worker::testing
