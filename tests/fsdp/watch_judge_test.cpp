// Goal: what the watcher concludes from the answers of ranks is right, and said so that people understand it.
#include "fsdp/comm/watch/hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fsdp::watch {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// The answer of a rank that has made these calls, of owners with these names.
Answer answer_of(const std::vector<std::string>& owners, bool waits, std::uint64_t first = 0) {
  Calls calls;
  for (const std::string& owner : owners) calls.start("all-gather", owner, 8);
  Answer answer;
  answer.calls = calls.last();
  for (Call& call : answer.calls) call.number += first;
  if (waits) answer.waits_in = answer.made() - 1;
  answer.unchanged = 12s;
  return answer;
}

TEST(WatchJudge, FindsTheFirstCallThatDiffers) {
  const Finding finding = judge("shard",
                                {{0, answer_of({"a", "b", "c"}, true)},
                                 {1, answer_of({"a", "c", "b"}, true)},
                                 {2, answer_of({"a", "c", "b"}, true)}},
                                {});
  EXPECT_EQ(finding.difference,
            "the ranks differ in call 1 of shard: ranks 1 and 2 call all-gather of c (8 bytes a rank); rank 0 calls "
            "all-gather of b (8 bytes a rank)");
}

TEST(WatchJudge, ARankThatIsBehindIsLateAndDoesNotDiffer) {
  Answer behind = answer_of({"a"}, false);
  behind.elsewhere = "call 3 of control, barrier (0 bytes a rank)";
  const Finding finding = judge("shard", {{0, answer_of({"a", "b"}, true)}, {3, behind}}, {});
  EXPECT_EQ(finding.difference, "");
  EXPECT_EQ(
      finding.late,
      "rank 0 waits in call 1 of shard, all-gather of b (8 bytes a rank): rank 3 has not come for 12.0 s (its last "
      "one is all-gather of a (8 bytes a rank); it stands in call 3 of control, barrier (0 bytes a rank))");
}

TEST(WatchJudge, ARankThatDoesNotAnswerIsTold) {
  const Finding finding = judge("shard", {{0, answer_of({"a"}, true)}, {1, answer_of({"a"}, true)}}, {2});
  EXPECT_EQ(finding.difference, "");
  EXPECT_THAT(finding.late, HasSubstr("ranks 0 and 1 wait in call 0 of shard, all-gather of a (8 bytes a rank): rank 2 "
                                      "did not answer"));
}

TEST(WatchJudge, NobodyIsLateWhileAllAreInTheSameCall) {
  const Finding finding = judge("shard", {{0, answer_of({"a"}, true)}, {1, answer_of({"a"}, true)}}, {});
  EXPECT_EQ(finding.difference + finding.late, "");
}

TEST(WatchJudge, RanksThatAreFarApartAreNotCompared) {
  const Finding finding =
      judge("shard", {{0, answer_of({"a"}, true)}, {1, answer_of({"b"}, true, /*first=*/1000)}}, {});
  EXPECT_EQ(finding.difference, "");
  EXPECT_THAT(finding.late, HasSubstr("rank 1 waits in call 1000"));
}

TEST(WatchJudge, TheEarliestCallThatARankLacksIsNamed) {
  const Finding finding = judge("shard",
                                {{0, answer_of({"a", "b", "c"}, true)},
                                 {1, answer_of({"a", "b"}, true)},
                                 {2, answer_of({"a"}, false)},
                                 {3, answer_of({"a", "b", "c"}, false)}},
                                {});
  EXPECT_EQ(finding.difference, "");
  EXPECT_THAT(finding.late, AllOf(HasSubstr("ranks 0 and 1 wait in call 1 of shard, all-gather of b (8 bytes a rank): "
                                            "rank 2 has not come for 12.0 s"),
                                  Not(HasSubstr("rank 3"))));
}

TEST(WatchJudge, LongListsOfRanksAreShortened) {
  EXPECT_EQ(names_of({4}), "rank 4");
  EXPECT_EQ(names_of({4, 5}), "ranks 4 and 5");
  EXPECT_EQ(names_of({1, 2, 3}), "ranks 1, 2 and 3");
  EXPECT_EQ(names_of({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
}

TEST(WatchCalls, KeepTheLastOnesAndTellLongNamesApart) {
  Calls calls;
  for (int i = 0; i < 200; ++i) calls.start("all-gather", "x", i);
  EXPECT_EQ(calls.last().size(), Calls::kKept);
  EXPECT_EQ(calls.last().back().number, 199U);
  EXPECT_EQ(calls.last().front().number, 200 - Calls::kKept);
  const std::string name(100, 'n');
  calls.start("all-gather", name + "1", 8);
  calls.start("all-gather", name + "2", 8);
  const auto last = calls.last();
  EXPECT_EQ(last[62].whose, last[63].whose);
  EXPECT_NE(last[62].digest, last[63].digest);
}

TEST(WatchCalls, CutALongNameBetweenTwoCharacters) {
  for (int before = 0; before < 4; ++before) {
    Answer answer;
    std::string name(static_cast<std::size_t>(before), 'n');
    for (int i = 0; i < 20; ++i) name += "\u5c64";  // three bytes each
    Calls calls;
    calls.start("all-gather", name + "1", 8);
    answer.calls = calls.last();
    const std::string& shown = answer.calls[0].whose;
    EXPECT_EQ((shown.size() - static_cast<std::size_t>(before)) % 3, 0U) << before;
    EXPECT_GE(shown.size(), 57U);
    EXPECT_EQ(Answer::parse(Json::parse(answer.json().dump())).calls[0].whose, shown);
  }
}

TEST(WatchCalls, ShowANameThatIsNotUtf8InAscii) {
  Calls calls;
  calls.start("all-gather", "layer\xff\xe9 1", 8);
  EXPECT_EQ(calls.last()[0].whose, "layer?? 1");
}

TEST(WatchAnswer, SurvivesItsJourney) {
  Answer answer = answer_of({"a", "b"}, true);
  answer.elsewhere = "call 2";
  const Answer copy = Answer::parse(Json::parse(answer.json().dump()));
  EXPECT_EQ(copy.calls.at(1).digest, answer.calls.at(1).digest);
  EXPECT_EQ(copy.calls.at(1).text(), answer.calls.at(1).text());
  EXPECT_EQ(copy.waits_in, answer.waits_in);
  EXPECT_EQ(copy.unchanged, answer.unchanged);
  EXPECT_EQ(copy.elsewhere, "call 2");
}

/// A hub, and what it has sent to each rank.
struct TestHub {
  std::map<int, std::vector<std::string>> sent;
  Hub hub{1s, [this](int rank, const Json& message) { sent[rank].push_back(message.dump()); }};
  Hub::Clock::time_point now{};

  explicit TestHub(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) hub.came(rank);
  }
  void ask(int rank, const std::vector<int>& ranks) {
    Json question;
    question["ask"] = "shard";
    question["ranks"] = Json::Array(ranks.begin(), ranks.end());
    hub.heard(rank, question, now);
  }
  void answer(int rank, const Answer& answer) {
    Json message = answer.json();
    message["answer"] = "shard";
    hub.heard(rank, message, now);
    hub.look(now);
  }
};

TEST(WatchHub, AsksTheGroupAndTellsEverybodyTheVerdict) {
  TestHub world(3);
  world.ask(0, {0, 2});
  EXPECT_THAT(world.sent[2].back(), HasSubstr("query"));
  EXPECT_TRUE(world.sent[1].empty());
  world.answer(0, answer_of({"a"}, true));
  world.answer(2, answer_of({"b"}, true));
  for (int rank = 0; rank < 3; ++rank) EXPECT_THAT(world.sent[rank].back(), HasSubstr("the ranks differ in call 0"));
}

TEST(WatchHub, TheFirstVerdictStays) {
  TestHub world(2);
  Json first, second;
  first["verdict"] = "the cause";
  second["verdict"] = "a consequence";
  world.hub.heard(1, first, world.now);
  world.hub.heard(0, second, world.now);
  EXPECT_THAT(world.sent[0].back(), HasSubstr("the cause"));
}

TEST(WatchHub, ARankThatAsksAfterTheVerdictIsToldTheVerdict) {
  TestHub world(2);
  Json verdict;
  verdict["verdict"] = "the cause";
  world.hub.heard(1, verdict, world.now);
  world.sent.clear();
  world.ask(0, {0, 1});
  EXPECT_THAT(world.sent[0], ElementsAre(HasSubstr("the cause")));
}

TEST(WatchHub, JudgesWithoutARankThatDoesNotAnswerInTime) {
  TestHub world(2);
  world.ask(0, {0, 1});
  world.answer(0, answer_of({"a"}, true));
  EXPECT_THAT(world.sent[0].back(), HasSubstr("query")) << "rank 1 has time left";
  world.now += 1s;
  world.hub.look(world.now);
  EXPECT_THAT(world.sent[0].back(), HasSubstr("rank 1 did not answer"));
}

TEST(WatchHub, DoesNotWaitForTheAnswerOfARankThatIsGone) {
  TestHub world(3);
  world.ask(0, {0, 1});
  world.answer(0, answer_of({"a"}, true));
  world.hub.gone(1, "process 7 on node-1 has ended");
  world.hub.look(world.now);
  // The question has ended, so another one is asked. Nobody waits for rank 1 this time either.
  for (int question = 0; question < 2; ++question) {
    world.sent.clear();
    world.ask(0, {0, 1});
    EXPECT_THAT(world.sent[0], ElementsAre(HasSubstr("query"))) << question;
    EXPECT_TRUE(world.sent[1].empty());
    world.answer(0, answer_of({"a"}, true));
  }
}

TEST(WatchHub, ARankThatHasSaidGoodbyeIsNotLostOnceMore) {
  TestHub world(2);
  Json goodbye;
  goodbye["bye"]["shard"] = 3;
  world.hub.heard(1, goodbye, world.now);
  EXPECT_THAT(world.sent[0], ElementsAre(AllOf(HasSubstr("\"gone\":1"), HasSubstr("\"made\":{\"shard\":3}"))));
  world.hub.gone(1, "process 7 on node-1 has ended");
  EXPECT_EQ(world.sent[0].size(), 1U);
}

TEST(WatchHub, RefusesNonsense) {
  TestHub world(2);
  EXPECT_THROW(world.hub.heard(1, Json::parse(R"({"greeting":"hello"})"), world.now), JsonError);
}

TEST(WatchHub, TellsLaterRanksWhoIsGone) {
  TestHub world(2);
  world.hub.gone(1, "process 7 on node-1 has ended");
  EXPECT_THAT(world.sent[0].back(), HasSubstr("process 7 on node-1 has ended"));
  world.hub.came(2);
  EXPECT_THAT(world.sent[2].back(), HasSubstr("\"gone\":1"));
}

}  // namespace
}  // namespace fsdp::watch
