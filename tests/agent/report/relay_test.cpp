// Goal: what a program writes into its report file reaches the controller whole and in order, and neither a disk nor a
// controller holds up the agent.
// Method: files that a test writes as a program would, and a reporter that remembers what it was told.
#include "agent/report/relay.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <future>

#include "tests/temporary_folder.h"

namespace agent::report {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// The news that a controller was told, as lines.
class Told {
 public:
  /// A controller that has taken so many reports, and no more for now. Of those that wait, so many have room.
  void let_take(std::size_t reports, std::size_t room) {
    const std::lock_guard lock(mutex_);
    taken_ = reports;
    room_ = room;
  }
  void add_report() {
    const std::lock_guard lock(mutex_);
    ++reports_;
    news_.notify_all();
    EXPECT_LE(reports_, taken_ + room_) << "the oldest would be lost";
  }
  std::size_t reports() {
    const std::lock_guard lock(mutex_);
    return reports_;
  }
  bool wait_for_reports(std::size_t count) {
    std::unique_lock lock(mutex_);
    return news_.wait_for(lock, 10s, [&] { return reports_ >= count; });
  }
  rank::Backlog backlog() {
    const std::lock_guard lock(mutex_);
    const auto waiting = reports_ - std::min(reports_, taken_);
    return {waiting >= room_, waiting > kOneHeartbeat, waiting};
  }
  static constexpr std::size_t kOneHeartbeat = 5;

  void add(const std::string& line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(line);
    news_.notify_all();
  }
  /// Waits until there are so many lines.
  std::vector<std::string> lines(std::size_t count) {
    std::unique_lock lock(mutex_);
    news_.wait_for(lock, 10s, [&] { return lines_.size() >= count; });
    return lines_;
  }

  void set_path(const std::string& path) {
    const std::lock_guard lock(mutex_);
    path_ = path;
  }
  void set_words(const rank::ProgramWords& words) {
    const std::lock_guard lock(mutex_);
    words_ = words;
    news_.notify_all();
  }
  std::string path() {
    const std::lock_guard lock(mutex_);
    return path_;
  }
  /// Waits until the words are as `is` says.
  rank::ProgramWords words(const std::function<bool(const rank::ProgramWords&)>& is) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(news_.wait_for(lock, 10s, [&] { return is(words_); }));
    return words_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable news_;
  std::size_t reports_ = 0, taken_ = 1'000'000, room_ = 1'000'000;
  std::string path_;
  rank::ProgramWords words_;
  std::vector<std::string> lines_;
};

class FakeReporter : public rank::Reporter {
 public:
  explicit FakeReporter(Told& told) : told_(told) {}
  void section(rank::Section now) override { told_.add("section " + std::to_string(static_cast<int>(now))); }
  void declare(std::vector<spec::Series> series) override {
    std::string line = "declare";
    for (const auto& one : series) line += " " + one.name;
    told_.add(line);
  }
  rank::Backlog backlog() const override { return told_.backlog(); }
  void step(const rank::StepReport& report) override {
    told_.add_report();
    std::string line = "step " + std::to_string(report.step);
    for (const auto& value : report.values) line += " " + value.series + "=" + std::to_string(value.value);
    told_.add(line + " in " + std::to_string(report.step_ms));
  }
  void resumed_from(std::int64_t step) override { told_.add("resumed " + std::to_string(step)); }
  void checkpoint_saved(std::int64_t step, std::int64_t bytes, double) override {
    told_.add("checkpoint " + std::to_string(step) + " " + std::to_string(bytes));
  }
  void checkpoint_saved_at(const std::string& path, std::int64_t step, std::int64_t bytes, double ms) override {
    told_.set_path(path);
    checkpoint_saved(step, bytes, ms);
  }
  void program(const rank::ProgramWords& words) override { told_.set_words(words); }
  rank::StopKind stop_requested() const override { return rank::StopKind::kNone; }
  bool assigns_rendezvous() const override { return false; }
  rank::Endpoint rendezvous(std::optional<rank::Endpoint>) override { return {}; }
  void leaving(int exit_code, std::string_view) override { told_.add("leaving " + std::to_string(exit_code)); }

 private:
  Told& told_;
};

class RelayTest : public testing::Test {
 protected:
  void append(std::string_view text) { std::ofstream(file_, std::ios::app) << text; }
  Connect connect() {
    return [this] {
      ++connections_;
      return std::make_unique<FakeReporter>(told_);
    };
  }

  test::TemporaryFolder folder_;
  const std::filesystem::path file_ = folder_.path() / "rank-0.report.jsonl";
  Told told_;
  std::atomic<int> connections_ = 0;
};

TEST_F(RelayTest, TellsEachFactInTheOrderOfTheFile) {
  Relay relay(file_, connect());
  append(R"({"series":{"acc":{"unit":"%"}}}
{"resumed":40}
{"step":41,"loss":2.5,"at_ms":1000}
{"section":"checkpoint"}
{"checkpoint":"c","step":41,"bytes":7}
{"section":"step"}
{"step":51,"loss":2.25,"at_ms":1500}
)");
  EXPECT_EQ(told_.lines(8), (std::vector<std::string>{"declare acc", "resumed 40", "step 41 loss=2.500000 in 0.000000",
                                                      "section 2", "section 3", "checkpoint 41 7", "section 2",
                                                      "step 51 loss=2.250000 in 50.000000"}))
      << "500 ms for ten steps";
}

TEST_F(RelayTest, AToldEndLastsUntilTheProgramTrainsOn) {
  Relay relay(file_, connect());
  append(R"({"step":7,"step_ms":5}
{"section":"end"}
{"step":7,"train_loss":2,"step_ms":5}
{"step":8,"step_ms":5}
)");
  EXPECT_EQ(told_.lines(6),
            (std::vector<std::string>{"step 7 in 5.000000", "section 2", "section 4",
                                      "step 7 train_loss=2.000000 in 5.000000", "step 8 in 5.000000", "section 2"}));
}

TEST_F(RelayTest, TellsTheLastLinesAndTheEndWhenTheProgramHasEnded) {
  Relay relay(file_, connect());
  append("{\"step\":1,\"step_ms\":5}\n");
  told_.lines(2);
  append("{\"step\":2,\"step_ms\":5}\n{\"step\":3,\"step_ms\":5}");
  relay.ended({.code = 99, .signal = 0});
  ASSERT_TRUE(relay.wait(Clock::now() + 10s));
  const auto lines = told_.lines(5);
  EXPECT_EQ(lines.at(3), "step 3 in 5.000000") << "a last line without its newline counts";
  EXPECT_EQ(lines.back(), "leaving 99");
  EXPECT_EQ(connections_, 1);
}

TEST_F(RelayTest, WhatStandsBehindLongLinesIsToldThoughTheProgramHasEnded) {
  append("{\"note\":\"" + std::string(5 << 20, 'x') + "\"}\n{\"step\":7,\"step_ms\":5}\n");
  Relay relay(file_, connect());
  relay.ended({.code = 0, .signal = 0});
  ASSERT_TRUE(relay.wait(Clock::now() + 10s));
  EXPECT_EQ(told_.lines(3), (std::vector<std::string>{"step 7 in 5.000000", "section 2", "leaving 0"}));
}

TEST_F(RelayTest, AProgramThatReportsNothingIsNeverHeardOf) {
  Relay relay(file_, connect());
  relay.ended({.code = 0, .signal = 0});
  ASSERT_TRUE(relay.wait(Clock::now() + 10s));
  EXPECT_EQ(connections_, 0);
}

TEST_F(RelayTest, BadLinesAloneAreToldToo) {
  append("no report at all\nand another one\n");
  Relay relay(file_, connect());
  relay.ended({.code = 0, .signal = 0});
  ASSERT_TRUE(relay.wait(Clock::now() + 10s));
  const auto words = told_.words([](const auto& now) { return now.bad_lines == 2; });
  EXPECT_EQ(words.first_bad_line, "line 1: \"no report at all\" is no JSON object");
  EXPECT_EQ(told_.lines(1), std::vector<std::string>{"leaving 0"});
}

TEST_F(RelayTest, TellsWhatTheProgramSaysOfItself) {
  append(R"({"total_steps":60,"config":{"lr":0.5}}
{"status":"downloads data"}
{"step":1,"loss":2}
{"section":"evaluate"}
{"checkpoint":"/ckpt/1","step":1,"bytes":7}
)");
  Relay relay(file_, connect());
  auto words = told_.words([](const auto& now) { return now.section == "evaluate"; });
  EXPECT_EQ(words.total_steps, 60);
  EXPECT_EQ(words.config, R"({"lr":0.5})");
  EXPECT_EQ(words.status, "downloads data");
  EXPECT_EQ(told_.path(), "/ckpt/1");
  append("{\"section\":\"step\"}\n");
  EXPECT_EQ(told_.words([](const auto& now) { return now.section.empty(); }).status, "downloads data");
}

TEST_F(RelayTest, AnErrorAfterWhichTheProgramWentOnIsForgotten) {
  append("{\"error\":{\"type\":\"ValueError\",\"message\":\"no\",\"trace\":\"t\"}}\n");
  Relay relay(file_, connect());
  const auto words = told_.words([](const auto& now) { return now.error.has_value(); });
  EXPECT_EQ(*words.error, (rank::ProgramWords::Error{"ValueError", "no", "t"}));
  append("{\"step\":1,\"loss\":2}\n");
  told_.words([](const auto& now) { return !now.error; });
}

std::string steps(int first, int last) {
  std::string lines;
  for (int step = first; step <= last; ++step) lines += "{\"step\":" + std::to_string(step) + ",\"step_ms\":5}\n";
  return lines;
}

// The file keeps what a controller has not taken yet.
TEST_F(RelayTest, ABurstIsToldWholeAsFastAsItIsTaken) {
  constexpr std::size_t kSteps = 3'000, kRoom = 500;
  told_.let_take(0, kRoom);
  Relay relay(file_, connect());
  append(steps(1, kSteps));
  relay.ended({.code = 0, .signal = 0});
  for (std::size_t wanted = kRoom; wanted <= kSteps; wanted += kRoom) {
    ASSERT_TRUE(told_.wait_for_reports(wanted));
    told_.let_take(wanted, kRoom);
  }
  ASSERT_TRUE(relay.wait(Clock::now() + 10s));
  EXPECT_EQ(told_.reports(), kSteps);
  EXPECT_EQ(told_.lines(0).back(), "leaving 0");
}

TEST_F(RelayTest, TheNewsOfAnEndWaitsAsLongAsReportsAreTaken) {
  told_.let_take(0, 100);
  Relay relay(file_, connect());
  append(steps(1, 100));
  ASSERT_TRUE(told_.wait_for_reports(100));
  relay.ended({.code = 0, .signal = 0});
  for (std::size_t taken = 1; taken <= 30; ++taken) {
    told_.let_take(taken, 100);
    ASSERT_FALSE(relay.wait_before_end(Clock::now() + 50ms)) << taken;
  }
  told_.let_take(100, 100);
  const auto all_taken = Clock::now();
  ASSERT_TRUE(relay.wait_before_end(Clock::now() + 10s));
  EXPECT_LT(Clock::now() - all_taken, Relay::kStandsLong);
  EXPECT_TRUE(relay.wait(Clock::now())) << "and nothing more is to be told";
}

// Other ranks may hang because of a rank that has failed.
TEST_F(RelayTest, TheNewsOfAFailureDoesNotWaitForAControllerThatTakesNothing) {
  told_.let_take(0, 100);
  Relay relay(file_, connect());
  append(steps(1, 100));
  ASSERT_TRUE(told_.wait_for_reports(100));
  const auto ended = Clock::now();
  relay.ended({.code = 1, .signal = 0});
  ASSERT_TRUE(relay.wait_before_end(Clock::now() + 10s));
  EXPECT_LT(Clock::now() - ended, 3s);
}

// With the news the attempt may be over, and nothing more is taken then.
TEST_F(RelayTest, TheNewsOfASuccessWaitsForAControllerThatIsSlowToTakeTheFirst) {
  told_.let_take(0, 100);
  Relay relay(file_, connect());
  append(steps(1, 100));
  ASSERT_TRUE(told_.wait_for_reports(100));
  relay.ended({.code = 0, .signal = 0});
  EXPECT_FALSE(relay.wait_before_end(Clock::now() + 2s));
  told_.let_take(100, 100);
  EXPECT_TRUE(relay.wait_before_end(Clock::now() + Relay::kStandsLong / 2));
}

TEST_F(RelayTest, WhatAControllerTakesAfterTheNewsOfAFailureIsToldWhole) {
  constexpr std::size_t kSteps = 300, kRoom = 100;
  told_.let_take(0, kRoom);
  Relay relay(file_, connect());
  append(steps(1, kSteps));
  ASSERT_TRUE(told_.wait_for_reports(kRoom));
  relay.ended({.code = 1, .signal = 0});
  ASSERT_TRUE(relay.wait_before_end(Clock::now() + 10s));
  ASSERT_EQ(told_.reports(), kRoom) << "the news has not waited for the others";
  auto finished = std::async(std::launch::async, [&] { return relay.finish(Clock::time_point::max()); });
  for (std::size_t taken = kRoom; taken <= kSteps; taken += kRoom) {
    told_.let_take(taken, kRoom);
    ASSERT_TRUE(told_.wait_for_reports(std::min(taken + kRoom, kSteps)));
  }
  EXPECT_EQ(finished.get(), "");
  EXPECT_EQ(told_.lines(0).back(), "leaving 1");
}

// The reporter keeps what it holds in a file, and the controller reads the report file itself.
TEST_F(RelayTest, AReportFileThatWasNotToldToItsEndIsCalledSo) {
  told_.let_take(0, 100);
  Relay relay(file_, connect());
  append(steps(1, 101));
  ASSERT_TRUE(told_.wait_for_reports(100));
  relay.ended({.code = 1, .signal = 0});
  EXPECT_EQ(relay.finish(Clock::now()), "");
  EXPECT_TRUE(told_.words([](const auto& words) { return words.blind; }).blind);
  EXPECT_EQ(told_.lines(0).back(), "leaving 1");
}

/// A source that tells all its steps at once, once there is a step to tell.
class Whole : public watch::ReportSource {
 public:
  explicit Whole(int steps) : steps_(steps) {}
  watch::Found look(const watch::Moment&) override {
    watch::Found found;
    for (; told_ < steps_; ++told_) found.reports.emplace_back().step.emplace().step = told_ + 1;
    return found;
  }

 private:
  const int steps_;
  int told_ = 0;
};

TEST_F(RelayTest, WhatWasReadAndNotToldIsCounted) {
  told_.let_take(0, 4);
  Relay relay(file_, connect(), Sources({std::make_shared<Whole>(7)}));
  ASSERT_TRUE(told_.wait_for_reports(4));
  relay.ended({.code = 1, .signal = 0});
  EXPECT_EQ(relay.finish(Clock::now()),
            "the controller took reports too slowly after the program's end, so 3 reports were not told");
}

/// A source whose next report waits until the one before was told.
class Endless : public watch::ReportSource {
 public:
  watch::Found look(const watch::Moment&) override {
    watch::Found found;
    found.more = true;
    found.reports.emplace_back().step.emplace().step = ++step_;
    return found;
  }
  std::string unread() const override { return "the last 7 bytes of the log"; }

 private:
  std::int64_t step_ = 0;
};

TEST_F(RelayTest, WhatCouldNotBeReadBeforeTheEndIsSaid) {
  told_.let_take(0, 3);
  {
    Relay relay(file_, connect(), Sources({std::make_shared<Endless>()}));
    ASSERT_TRUE(told_.wait_for_reports(3));
    relay.ended({.code = 1, .signal = 0});
    ASSERT_TRUE(relay.wait_before_end(Clock::now() + 10s));
  }
  EXPECT_EQ(told_.words([](const auto& words) { return !words.source_trouble.empty(); }).source_trouble,
            "the controller took reports too slowly after the program's end, so the last 7 bytes of the log were not "
            "searched, and one report was not told");
}

TEST_F(RelayTest, AControllerThatCannotBeReachedForGoodEndsTheRelayAlone) {
  append("{\"step\":1}\n");
  Relay relay(file_, []() -> std::unique_ptr<rank::Reporter> { throw std::invalid_argument("no controller"); });
  EXPECT_TRUE(relay.wait(Clock::now() + 10s));
}

}  // namespace
}  // namespace agent::report
