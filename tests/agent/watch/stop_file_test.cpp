// Goal: a program can read why it is asked to leave.
#include "agent/watch/agent_files.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/temporary_folder.h"

namespace agent::watch {
namespace {

TEST(StopFile, SaysWhyAndWhetherToSaveAndUntilWhen) {
  const auto json = nlohmann::json::parse(to_text({"preempted", true, 1'795'474'243'005}));
  EXPECT_EQ(json.at("why"), "preempted");
  EXPECT_EQ(json.at("save"), true);
  EXPECT_DOUBLE_EQ(json.at("deadline").get<double>(), 1'795'474'243.005);
  EXPECT_FALSE(json.contains("at_step"));
  EXPECT_EQ(nlohmann::json::parse(to_text({"preempted", true, 0, 1240})).at("at_step"), 1240);
  EXPECT_EQ(nlohmann::json::parse(to_text({"peer_failed", false, 0})).at("save"), false);
}

TEST(StopFile, IsWrittenWholeAndReplacesAnOlderOne) {
  const test::TemporaryFolder folder;
  const auto file = folder.path() / "rank-0.stop.json";
  for (const char* why : {"time_limit", "cancelled"}) {
    ASSERT_TRUE(write_stop_file(file, {why, true, 1'000}));
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    EXPECT_EQ(text.str(), to_text({why, true, 1'000}));
  }
  EXPECT_FALSE(write_stop_file(folder.path() / "no" / "folder", {"cancelled", true, 0}));
}

}  // namespace
}  // namespace agent::watch
