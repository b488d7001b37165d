// Goal: what a job file's [report] names is found beside the right rank, and a disk that stands still holds up nobody.
// Method: sources in a temporary folder, and one that waits until the test lets it go.
#include "agent/report/relay.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "tests/temporary_folder.h"

namespace agent::report {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using Steps = std::vector<std::int64_t>;

class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    opened_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [this] { return is_open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool is_open_ = false;
};

/// Tells one step at its first look, once the gate is open.
class OneStep : public watch::ReportSource {
 public:
  OneStep(std::int64_t step, std::shared_ptr<Gate> gate) : step_(step), gate_(std::move(gate)) {}
  watch::Found look(const watch::Moment&) override {
    gate_->wait();
    watch::Found found;
    if (std::exchange(told_, true)) return found;
    found.reports.emplace_back().step.emplace().step = step_;
    return found;
  }

 private:
  std::int64_t step_;
  std::shared_ptr<Gate> gate_;
  bool told_ = false;
};

Steps steps_of(const watch::Found& found) {
  Steps steps;
  for (const auto& report : found.reports) steps.push_back(report.step ? report.step->step : -report.checkpoint->step);
  return steps;
}

TEST(Sources, ADiskThatStandsStillHoldsUpNoOtherSource) {
  const auto shut = std::make_shared<Gate>(), open = std::make_shared<Gate>();
  open->open();
  Sources sources({std::make_shared<OneStep>(1, shut), std::make_shared<OneStep>(2, open)});
  sources.begin(Sources::Clock::now() + 10ms);
  EXPECT_EQ(steps_of(sources.take(Sources::Clock::now() + 100ms)), Steps{2});
  const spec::ExitStatus end;
  sources.start(end, std::nullopt);
  sources.take(Sources::Clock::now() + 100ms);
  EXPECT_FALSE(sources.is_done()) << "the first may bring something yet";
  shut->open();
  Steps rest;
  for (int i = 0; i < 5 && !sources.is_done(); ++i) {
    sources.start(end, std::nullopt);
    for (const auto step : steps_of(sources.take(Sources::Clock::now() + 10s))) rest.push_back(step);
  }
  EXPECT_EQ(rest, Steps{1}) << "what it brings is told when it comes";
  EXPECT_TRUE(sources.is_done());
}

class SourcesOfAJob : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
  /// Steps that are found after the end of a program that wrote this between the first look and its end.
  Steps found(const spec::ReportSources& wanted, std::uint32_t rank, const std::function<void()>& program) {
    auto sources =
        make_sources(wanted, {rank, folder_ / "log", folder_.path() / "work", {{"PLACE", folder_ / "place"}}});
    sources.begin(Sources::Clock::now() + 10s);
    program();
    Steps all;
    for (int i = 0; i < 10 && !sources.is_done(); ++i) {
      sources.start(spec::ExitStatus{}, std::nullopt);
      for (const auto step : steps_of(sources.take(Sources::Clock::now() + 10s))) all.push_back(step);
    }
    EXPECT_TRUE(sources.is_done());
    return all;
  }

  test::TemporaryFolder folder_;
};

TEST_F(SourcesOfAJob, ALogIsOfEachRankAndCheckpointsAreOfRankZero) {
  const spec::ReportSources wanted{"ckpt/step-*", {{"step", R"(step (\d+))"}}, ""};
  const auto program = [&] {
    write("log", "step 7\n");
    write("work/ckpt/step-6/model", "x");
  };
  EXPECT_EQ(found(wanted, 0, program), (Steps{7, -6}));
  fs::remove_all(folder_ / "work");
  EXPECT_EQ(found(wanted, 1, program), Steps{7});
}

TEST_F(SourcesOfAJob, PathsMayHoldVariablesOfTheRank) {
  EXPECT_EQ(found({"${PLACE}/c[k]-*", {}, ""}, 0, [&] { write("place/ck-8", "x"); }), Steps{-8});
  EXPECT_EQ(found({"$NOT_SET/c-*", {}, ""}, 0, [&] { write("c-8", "x"); }), Steps{});
  const auto sources = make_sources({"$NOT_SET/c-*", {}, ""}, {});
  EXPECT_EQ(sources.trouble().find("report.checkpoints is not looked for: "), 0u) << sources.trouble();
  EXPECT_NE(sources.trouble().find("NOT_SET"), std::string::npos) << sources.trouble();
}

TEST_F(SourcesOfAJob, WhatHasMatchedNothingIsToldAtTheEnd) {
  const auto trouble = [&](const spec::ReportSources& wanted, bool ends) {
    auto sources = make_sources(wanted, {0, folder_ / "log", folder_.path() / "work", {}});
    sources.begin(Sources::Clock::now() + 10s);
    write("log", "step 3\nloss 2\n");
    for (int i = 0; i < 3; ++i) {
      sources.start(ends ? std::optional(spec::ExitStatus{}) : std::nullopt, std::nullopt);
      sources.take(Sources::Clock::now() + 10s);
    }
    return sources.trouble();
  };
  const std::map<std::string, std::string> log{{"step", R"(step (\d+))"}, {"loss", R"(losss (\d+))"}};
  EXPECT_EQ(trouble({"", log, ""}, true), "report.log: no line of the log matches the pattern of loss");
  EXPECT_EQ(trouble({"", log, ""}, false), "") << "it may come";
  EXPECT_EQ(trouble({"ckpt/*", {}, ""}, true),
            "report.checkpoints: nothing has matched " + folder_.path().string() + "/work/ckpt/*");
  EXPECT_EQ(trouble({"", {}, "nowhere"}, true),
            "report.tensorboard: there is no event file in " + folder_.path().string() + "/work/nowhere");
}

TEST_F(SourcesOfAJob, WithoutReportThereIsNothingToWaitFor) {
  EXPECT_TRUE(make_sources({}, {}).is_done());
}

}  // namespace
}  // namespace agent::report
