#include "agent/protocol/facts.h"

#include <gtest/gtest.h>

// Goal: a musterd of any version understands what an agent of any version wrote.
namespace agent::protocol {
namespace {

TEST(AgentFacts, EveryFactComesBackAsItWas) {
  const Started started{"boot", "node \"1\"", 7, {{8, 123}, {9, 18446744073709551615U}}};
  const std::vector<Fact> facts{started,
                                Running{},
                                LaunchFailed{"no\nsuch", false, "node"},
                                Exited{1, {0, 9}, true, 1234, ""},
                                Exited{2, {1, 0}, false, 1234, "ValueError: \xc3\xa9", {15, 12}, true},
                                Ended{}};
  for (const auto& fact : facts) {
    auto line = to_line(fact);
    ASSERT_EQ(line.find('\n'), line.size() - 1) << line;
    line.pop_back();
    EXPECT_EQ(parse_fact(line), fact) << line;
  }
}

TEST(AgentFacts, OfTheFirstVersionAreUnderstood) {
  const auto status =
      parse_status(R"({"boot_id":"b","fact":"started","node":"n","ranks":[{"pid":8,"start_time":1}],"session":7}
{"fact":"running"}
{"at_ms":5,"code":3,"fact":"exited","out_of_memory":false,"rank":0,"signal":0}
{"fact":"ended"}
)");
  EXPECT_EQ(status.started, (Started{"b", "n", 7, {{8, 1}}}));
  EXPECT_TRUE(status.running);
  EXPECT_EQ(status.exits.at(0), (Exited{0, {3, 0}, false, 5, ""}));
  EXPECT_TRUE(status.ended);
}

// The first to end is the culprit.
TEST(AgentFacts, KeepTheOrderOfTheEnds) {
  const auto status = parse_status(to_line(Exited{2, {1, 0}, false, 0, ""}) + to_line(Exited{0, {1, 0}, false, 0, ""}) +
                                   to_line(Exited{2, {1, 0}, false, 0, ""}));
  EXPECT_EQ(status.ends, (std::vector<std::uint32_t>{2, 0}));
}

TEST(AgentFacts, TextThatIsNotUtf8IsReplaced) {
  auto line = to_line(Exited{0, {1, 0}, false, 0, "bad \xff"});
  line.pop_back();
  EXPECT_EQ(std::get<Exited>(parse_fact(line).value()).error, "bad \xef\xbf\xbd");
}

TEST(AgentFacts, LieInAFileOfTheAgentsFirstRank) {
  EXPECT_EQ(status_file(0), "status.jsonl");
  EXPECT_EQ(status_file(12), "status-12.jsonl");
  for (const char* name : {"status.jsonl", "status-12.jsonl"}) EXPECT_TRUE(is_status_file(name)) << name;
  for (const char* name : {"status.jsonl.tmp", "launch.json", "logs"}) EXPECT_FALSE(is_status_file(name)) << name;
}

}  // namespace
}  // namespace agent::protocol
