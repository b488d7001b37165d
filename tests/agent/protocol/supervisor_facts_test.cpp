#include "agent/protocol/supervisor_words.h"

#include <gtest/gtest.h>

// Goal: a musterd of any version understands what a supervisor of any version wrote.
namespace agent::protocol {
namespace {

TEST(SupervisorFacts, EveryFactComesBackAsItWas) {
  const Started started{"boot", "node \"1\"", 7, {{8, 123}, {9, 18446744073709551615U}}};
  const std::vector<Fact> facts{started,
                                Running{},
                                LaunchFailed{"no\nsuch", false},
                                Exited{1, {0, 9}, true, 1234, ""},
                                Ended{},
                                Holds{},
                                Used{{{0, {5, 1.5, 100, 200, 3, 40.5, 300}}, {7, {6, {}, 1, 2, 1, {}, {}}}}}};
  for (const auto& fact : facts) {
    auto line = to_line(fact);
    ASSERT_EQ(line.find('\n'), line.size() - 1) << line;
    line.pop_back();
    EXPECT_EQ(parse_fact(line), fact) << line;
  }
}

TEST(SupervisorFacts, OfTheFirstVersionAreUnderstood) {
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

}  // namespace
}  // namespace agent::protocol
