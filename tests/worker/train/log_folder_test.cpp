// Goal: a run with train.log_folder leaves the values of every step there, as JSON lines and for TensorBoard, also when
// it was killed and went on; and it has the hooks that its keys ask for.
// Method: real attempts. The first one dies after a step that no checkpoint holds.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "agent/watch/tensorboard_watch.h"
#include "tests/worker/trainer_ranks.h"
#include "worker/train/hooks/hooks.h"
#include "worker/train/resume.h"

namespace worker::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Values = std::map<std::string, double>;
using Steps = std::vector<std::pair<std::int64_t, Values>>;

Steps steps_of(const std::vector<agent::rank::StepReport>& reports) {
  Steps out;
  for (const auto& report : reports) {
    Values values;
    for (const auto& [series, value] : report.values) values[series] = value;
    out.emplace_back(report.step, values);
  }
  return out;
}

Steps json_lines(const std::filesystem::path& folder) {
  Steps out;
  std::istringstream lines(read_file(folder / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto json = fsdp::Json::parse(line);
    Values values;
    for (const auto& [series, value] : json.at("values").as_object()) values[series] = value.as_double();
    out.emplace_back(json.at("step").as_int(), values);
  }
  return out;
}

/// The steps of each event file, in the order of the attempts.
std::vector<Steps> event_files_in(const std::filesystem::path& folder) {
  std::map<std::string, Steps> by_attempt;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!entry.path().filename().native().starts_with("events.out.tfevents.")) continue;
    const std::string bytes = read_file(entry.path());
    const auto read = agent::watch::read_events(bytes);
    EXPECT_EQ(read.taken, bytes.size());
    EXPECT_EQ(read.problem, "");
    EXPECT_EQ(read.bad_records, 0U);
    Steps& steps = by_attempt[entry.path().extension()];
    for (const auto& event : read.events)
      steps.emplace_back(event.step, Values(event.values.begin(), event.values.end()));
  }
  std::vector<Steps> out;
  for (auto& [attempt, steps] : by_attempt) out.push_back(std::move(steps));
  return out;
}

void expect_values(const Steps& got, const Steps& want, double relative) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].first, want[i].first);
    ASSERT_EQ(got[i].second.size(), want[i].second.size()) << "step " << want[i].first;
    for (const auto& [series, value] : want[i].second) {
      ASSERT_TRUE(got[i].second.contains(series)) << series;
      EXPECT_NEAR(got[i].second.at(series), value, relative * std::abs(value))
          << series << " of step " << want[i].first;
    }
  }
}

TEST(LogFolder, HasEveryStepOnceAfterAnAttemptThatWasKilled) {
  const TemporaryFolder folder;
  RunConfig config =
      run_of(folder, R"(,"steps":8,"validation_every_steps":4,"log_folder":")" + (folder / "log").native() + "\"");
  config.checkpoint.every_steps = 3;
  std::vector<Listener> first(1), rest(2);
  std::string error;
  first[0].on_failure = [&](const std::string& text) { error = text; };
  first[0].on_step = [&] {
    if (first[0].steps.size() == 5) throw std::runtime_error("killed");
  };
  train(config, first);
  EXPECT_THAT(error, HasSubstr("killed"));
  EXPECT_THAT(numbers(first[0].steps), ElementsAre(1, 2, 3, 4, 5));
  train(config, rest, 2);
  EXPECT_THAT(numbers(rest[0].steps), ElementsAre(4, 5, 6, 7, 8));

  // The killed attempt had not written step 5, and its step 4 was made again.
  Steps before = steps_of(first[0].steps), after = steps_of(rest[0].steps);
  before.pop_back();
  Steps once = before;
  once.pop_back();
  once.insert(once.end(), after.begin(), after.end());
  ASSERT_TRUE(once[3].second.contains("validation/loss"));
  ASSERT_TRUE(once[7].second.contains("validation/loss"));
  expect_values(json_lines(folder / "log"), once, 1e-9);
  const auto files = event_files_in(folder / "log");
  ASSERT_EQ(files.size(), 2U) << "one for each attempt, of rank 0";
  expect_values(files[0], before, 1e-6);
  expect_values(files[1], after, 1e-6);
}

/// How many hooks of a kind a rank has.
template <class Kind>
std::ptrdiff_t count_of(const Resume& resume) {
  return std::ranges::count_if(resume.hooks,
                               [](const auto& hook) { return dynamic_cast<const Kind*>(hook.get()) != nullptr; });
}

TEST(LogFolder, AndTheOtherHooksAreThoseThatTheKeysAskFor) {
  const TemporaryFolder folder;
  const auto expect_hooks = [&](const std::string& keys, std::ptrdiff_t log_files, std::ptrdiff_t early_stops) {
    RunConfig config = run_of(folder, R"(,"steps":2,"validation_every_steps":1)" + keys);
    const agent::rank::RankEnvironment alone;
    Listener listener;
    std::promise<agent::rank::Endpoint> meeting;
    listener.meeting = &meeting;
    listener.where = meeting.get_future().share();
    worker::Setup setup(config, alone, listener, make_recipe);
    const Resume resume(setup);
    EXPECT_EQ(count_of<LogFiles>(resume), log_files) << keys;
    EXPECT_EQ(count_of<EarlyStop>(resume), early_stops) << keys;
    EXPECT_EQ(count_of<Progress>(resume), 1) << keys;
  };
  expect_hooks("", 0, 0);
  expect_hooks(R"(,"early_stop":2)", 0, 1);
  expect_hooks(R"(,"log_folder":")" + (folder / "log").native() + "\"", 1, 0);
}

}  // namespace
}  // namespace worker::testing
