#include "agent/protocol/files.h"

#include <gtest/gtest.h>

// Goal: musterd learns from a rank's status file what muster-task saw, whichever of the two is older.
namespace agent::protocol {
namespace {

TEST(RankStatus, ComesBackAsItWas) {
  const RankStatus full{.state = RankStatus::State::kStepLost,
                        .node = "n1",
                        .pid = 42,
                        .exit = {0, 9},
                        .ended_at_ms = 1'795'474'243'500,
                        .out_of_memory = true,
                        .signals_seen = {15, 12},
                        .trouble = "cannot execute x",
                        .error = "ValueError: \xc3\xa9"};
  EXPECT_EQ(parse_rank_status(to_text(full)), full);
  RankStatus running;
  EXPECT_EQ(parse_rank_status(to_text(running)), running);
  running.exit.code = 7;
  running.state = RankStatus::State::kExited;
  EXPECT_EQ(parse_rank_status(to_text(running)), running);
}

TEST(RankStatus, OfAnOlderMusterTaskIsUnderstood) {
  const auto status = parse_rank_status(R"({"format":1,"state":"exited","node":"n1","pid":1,"exit_code":3,"signal":0,
    "signals_seen":[],"trouble":""})");
  ASSERT_TRUE(status);
  EXPECT_EQ(status->exit, (spec::ExitStatus{3, 0}));
  EXPECT_EQ(status->ended_at_ms, 0);
  EXPECT_EQ(status->error, "");
}

TEST(RankStatus, WhatIsNoSuchFileIsNothing) {
  for (const auto* text :
       {"", "{", "[]", "{}", R"({"format":2,"state":"exited"})", R"({"format":"x"})", R"({"format":1,"pid":"x"})"}) {
    EXPECT_EQ(parse_rank_status(text), std::nullopt) << text;
  }
}

TEST(RankStatus, TextThatIsNotUtf8IsReplaced) {
  RankStatus status;
  status.error = "bad \xff";
  EXPECT_EQ(parse_rank_status(to_text(status))->error, "bad \xef\xbf\xbd");
}

TEST(RankStatus, LiesInTheAttemptsFolder) {
  EXPECT_EQ(rank_status_file("/jobs/7/attempt-2", 3), "/jobs/7/attempt-2/ranks/rank-3.json");
}

}  // namespace
}  // namespace agent::protocol
