// Goal: another program reads the event files of train.log_folder, checksums included.
// Method: two attempts of the hook; tests/peers/event_file_judge.py reads TFRecord and protobuf by itself. Skipped
// without a Python for the peers' tests; see peer_python.h.
#include <gtest/gtest.h>

#include <sstream>

#include "fsdp/text/json.h"
#include "tests/worker/peer_python.h"
#include "worker/train/hooks/hooks.h"

namespace worker::testing {
namespace {

TEST(EventFiles, OfTwoAttemptsAreReadByAnotherProgram) {
  const std::string python = peer_python();
  if (python.empty()) GTEST_SKIP() << kNoPeerPython;
  const TemporaryFolder folder;
  const auto silent = [](const std::string& line) { ADD_FAILURE() << line; };
  const auto value_at = [](std::int64_t step) { return 1.5 / static_cast<double>(step); };
  // Step 200 needs two bytes on the wire. The second attempt makes it again.
  const std::vector<std::vector<std::int64_t>> attempts{{1, 127, 128, 200}, {200, 70'000}};
  for (std::size_t i = 0; i < attempts.size(); ++i) {
    LogFiles hook(folder / "log", static_cast<std::int64_t>(i) + 1, silent);
    hook.began(attempts[i].front() - 1);
    for (const auto step : attempts[i]) {
      agent::rank::StepReport report;
      report.step = step;
      report.at_ms = 1'764'000'000'250 + step;
      report.values = {{"loss", value_at(step)}, {"validation/loss", -value_at(step)}};
      hook.step(report, false);
    }
  }
  run_peer(python, "event_file_judge.py", {(folder / "log").native()}, folder.path());
  std::istringstream lines(read_file(folder / "peer.log"));
  std::vector<std::vector<std::int64_t>> steps;
  for (std::string line; std::getline(lines, line);) {
    const auto json = fsdp::Json::parse(line);
    if (const auto* version = json.find("version")) {
      EXPECT_EQ(version->as_string(), "brain.Event:2");
      steps.emplace_back();
      continue;
    }
    ASSERT_FALSE(steps.empty()) << "a file begins with its version";
    const std::int64_t step = json.at("step").as_int();
    steps.back().push_back(step);
    EXPECT_DOUBLE_EQ(json.at("time").as_double(), 1'764'000'000.25 + static_cast<double>(step) / 1e3);
    EXPECT_EQ(json.at("values").size(), 2U);
    EXPECT_FLOAT_EQ(static_cast<float>(json.at("values").at("loss").as_double()), static_cast<float>(value_at(step)));
    EXPECT_FLOAT_EQ(static_cast<float>(json.at("values").at("validation/loss").as_double()),
                    static_cast<float>(-value_at(step)));
  }
  EXPECT_EQ(steps, attempts);
}

}  // namespace
}  // namespace worker::testing
