// Goal: silence, hanging and blindness are told apart, and nobody is blamed for what the controller could not hear.
// Method: the rules are pure; each case is a line of a table.
#include "controller/ranks/liveness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/core/core_text.h"
#include "controller/ranks/live_ranks.h"
#include "tests/controller/core/sentences.h"
#include "tests/controller/ranks/on_nodes.h"

namespace ranks {
namespace {

/// Tests whose sentences are in tests/golden/liveness.txt.
struct ToldOfRanks : test::ToldStories {
  ToldOfRanks() : ToldStories("liveness.txt") {}
};
struct LivenessStory : ToldOfRanks {};
struct LostNodesStory : ToldOfRanks {};
struct SuspicionStory : ToldOfRanks {};

TEST(LivenessGolden, EverySectionIsOfATest) {
  test::expect_sections_of_tests("liveness.txt");
}

/// A round in which everything has been read, and every rank has its own interval.
LiveRanks::Round round_at(core::Millis now, bool deaf) {
  return {now, deaf, now, [](core::Millis) { return core::Millis(0); }};
}

struct Silence {
  const char* name;
  bool joined;
  executors::Vouch vouch;
  core::Millis not_before, by;  // when the rank is found silent
};

class SilenceRules : public ::testing::TestWithParam<Silence> {};

// Rounds of 100 ms, as the ticker makes them; the time until the finding, or nullopt within twenty minutes.
std::optional<core::Millis> time_to_finding(AttemptWatch& watch, executors::Vouch vouch, core::EventBody* finding) {
  for (core::Millis gone{0}; gone < 20min; gone += 100ms) {
    for (auto rank : watch.overdue(kStart + gone)) {
      if (auto fact = watch.judge(rank, vouch, kStart + gone)) {
        *finding = *fact;
        return gone;
      }
    }
  }
  return std::nullopt;
}

TEST_P(SilenceRules, Hold) {
  const auto& rule = GetParam();
  AttemptWatch watch({}, 2, 3, kStart);
  if (rule.joined) watch.heard(1, {5, "step"}, kStart);
  // Rank 0 stays well out of it.
  core::Attempt attempt;
  attempt.ranks.resize(2);
  attempt.ranks[0].state = core::RankState::kExited;
  watch.follow(attempt, kStart);
  core::EventBody finding;
  const auto time = time_to_finding(watch, rule.vouch, &finding);
  ASSERT_TRUE(time);
  EXPECT_GE(*time, rule.not_before);
  EXPECT_LE(*time, rule.by);
  const auto& silent = std::get<core::RankSilent>(finding);
  EXPECT_EQ(silent.attempt, 3U);
  EXPECT_EQ(silent.rank, 1U);
  EXPECT_EQ(silent.silent_for, *time);
  EXPECT_TRUE(watch.overdue(kStart + 1h).empty()) << "said once";
}

INSTANTIATE_TEST_SUITE_P(
    Table, SilenceRules,
    ::testing::Values(Silence{"Stopped", true, executors::Vouch::kStopped, 2500ms, 2500ms},
                      Silence{"Unknown", true, executors::Vouch::kUnknown, 10min, 10min},
                      Silence{"NodeAnswers", true, executors::Vouch::kNodeAnswers, 10min, 10min},
                      Silence{"Alive", true, executors::Vouch::kAlive, 10min, 10min},
                      Silence{"GoneWithoutAnEnd", true, executors::Vouch::kGone, 4500ms, 4500ms},
                      Silence{"NeverJoinedAlive", false, executors::Vouch::kAlive, 12min, 12min},
                      Silence{"NeverJoinedNodeAnswers", false, executors::Vouch::kNodeAnswers, 12min, 12min},
                      Silence{"NeverJoinedStopped", false, executors::Vouch::kStopped, 120s, 120s},
                      Silence{"NeverJoinedUnknown", false, executors::Vouch::kUnknown, 12min, 12min},
                      Silence{"NeverJoinedGone", false, executors::Vouch::kGone, 122s, 122s}),
    [](const ::testing::TestParamInfo<Silence>& row) { return std::string(row.param.name); });

// A cancel in Slurm lets the other ranks save for a minute, and its end is told with its true cause after that.
TEST(Liveness, ARankWhoseEndIsKnownIsNeverSilent) {
  AttemptWatch watch({}, 1, 1, kStart);
  watch.heard(0, {1, "step"}, kStart);
  EXPECT_FALSE(watch.judge(0, executors::Vouch::kGone, kStart + 3s));
  for (const auto after : {6s, 20s, 60s}) EXPECT_FALSE(watch.judge(0, executors::Vouch::kEnded, kStart + after));
}

TEST(Liveness, AHeartbeatBetweenQuestionAndAnswerCounts) {
  AttemptWatch watch({}, 1, 1, kStart);
  watch.heard(0, {1, "step"}, kStart);
  ASSERT_EQ(watch.overdue(kStart + 3s).size(), 1U);
  watch.heard(0, {1, "step"}, kStart + 3s);
  EXPECT_FALSE(watch.judge(0, executors::Vouch::kStopped, kStart + 3s));
}

TEST(Liveness, ARankThatReportsButDoesNotMoveHangs) {
  AttemptWatch watch({}, 1, 1, kStart);
  core::Millis now = kStart;
  for (; now < kStart + 30min; now += 500ms) {
    watch.heard(0, {7, "step"}, now);
    ASSERT_TRUE(watch.findings(now).empty()) << (now - kStart).count();
    watch.suspicion(now, now);
  }
  watch.heard(0, {7, "step"}, now);
  const auto found = watch.findings(now);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(std::get<core::RankHung>(found[0]).section, "step");
  EXPECT_TRUE(watch.findings(now + 1s).empty()) << "said once";
}

TEST(Liveness, AnotherSectionIsProgress) {
  AttemptWatch watch({}, 1, 1, kStart);
  watch.heard(0, {7, "step"}, kStart);
  watch.heard(0, {7, "checkpoint"}, kStart + 29min);
  watch.heard(0, {7, "checkpoint"}, kStart + 31min);
  EXPECT_TRUE(watch.findings(kStart + 31min).empty());
}

/// Rounds of 100 ms for so long, in which the node says so of the only rank; what is found, and when.
std::optional<std::pair<core::Millis, core::EventBody>> rounds(AttemptWatch& watch, executors::Vouch vouch,
                                                               core::Millis from, core::Millis time) {
  for (auto now = from; now < from + time; now += 100ms) {
    for (const auto rank : watch.overdue(now)) {
      watch.note(rank, vouch, now);
      if (auto fact = watch.judge(rank, vouch, now)) return std::pair(now, *fact);
    }
    if (const auto found = watch.findings(now); !found.empty()) return std::pair(now, found.front());
    watch.suspicion(now, now);
  }
  return std::nullopt;
}

TEST(Liveness, ACommandIsNotExpectedToSpeak) {
  for (const auto vouch : {executors::Vouch::kAlive, executors::Vouch::kUnknown, executors::Vouch::kEnded,
                           executors::Vouch::kGone, executors::Vouch::kSuspended}) {
    AttemptWatch watch({.heartbeats = false}, 1, 1, kStart);
    EXPECT_FALSE(rounds(watch, vouch, kStart, 1h)) << static_cast<int>(vouch);
  }
}

TEST(Liveness, ACommandWhoseProcessIsStoppedIsSilent) {
  AttemptWatch watch({.silent_after = 5s, .heartbeats = false}, 1, 1, kStart);
  ASSERT_FALSE(rounds(watch, executors::Vouch::kAlive, kStart, 1min));
  const auto stopped = kStart + 1min;
  const auto found = rounds(watch, executors::Vouch::kStopped, stopped, 1min);
  ASSERT_TRUE(found);
  EXPECT_GE(found->first - stopped, 5s);
  EXPECT_LE(found->first - stopped, 6s);
  const auto& silent = std::get<core::RankSilent>(found->second);
  EXPECT_EQ(silent.seen, "stopped");
  EXPECT_GE(silent.silent_for, 5s);
  EXPECT_FALSE(rounds(watch, executors::Vouch::kStopped, found->first, 1min)) << "told once";
}

TEST(Liveness, ACommandThatGoesOnInTimeWasNotSilent) {
  AttemptWatch watch({.silent_after = 5s, .heartbeats = false}, 1, 1, kStart);
  for (int round = 0; round < 9; ++round) {
    const auto begin = kStart + round * 6s;
    EXPECT_FALSE(rounds(watch, executors::Vouch::kStopped, begin, 4s)) << round;
    EXPECT_FALSE(rounds(watch, executors::Vouch::kAlive, begin + 4s, 2s)) << round;
  }
  AttemptWatch never({.silent_after = 0s, .heartbeats = false}, 1, 1, kStart);
  EXPECT_FALSE(rounds(never, executors::Vouch::kStopped, kStart, 1h)) << "0 turns it off";
}

// Slurm stops ranks and tasks one by one, and lets them go on so.
TEST(LostNodes, ATaskThatIsStoppedAfterItsRankHasSaidNothingThatCounts) {
  for (const auto after : {executors::Vouch::kUnknown, executors::Vouch::kSuspended}) {
    AttemptWatch watch({.silent_after = 1s, .heartbeats = false}, 1, 1, kStart);
    core::Attempt attempt;
    attempt.state = core::AttemptState::kRunning;
    attempt.queued_at = core::Time{};
    attempt.ranks.resize(1);
    watch.follow(attempt, kStart);
    EXPECT_FALSE(rounds(watch, executors::Vouch::kStopped, kStart, 1500ms)) << "so long a task's word lasts";
    EXPECT_FALSE(rounds(watch, after, kStart + 1500ms, 1h));
    EXPECT_FALSE(rounds(watch, executors::Vouch::kStopped, kStart + 2h, 1500ms));
  }
}

TEST(Liveness, ABlindControllerCountsAStopAnew) {
  AttemptWatch watch({.silent_after = 5s, .heartbeats = false}, 1, 1, kStart);
  ASSERT_FALSE(rounds(watch, executors::Vouch::kStopped, kStart, 4s));
  watch.fresh_start(kStart + 1h);
  const auto found = rounds(watch, executors::Vouch::kStopped, kStart + 1h, 1min);
  ASSERT_TRUE(found);
  EXPECT_GE(found->first, kStart + 1h + 5s);
}

TEST(Liveness, ACommandThatHasToldOfAStepHangsLikeAnyOther) {
  for (const bool tells_steps : {true, false}) {
    AttemptWatch watch({.hung_after = 30min, .heartbeats = false}, 1, 1, kStart);
    std::optional<std::pair<core::Millis, core::EventBody>> found;
    for (core::Millis gone{0}; gone < 2h && !found; gone += 1s) {
      watch.heard(0, {tells_steps ? 7 : 0, "step"}, kStart + gone);
      found = rounds(watch, executors::Vouch::kAlive, kStart + gone, 1s);
    }
    ASSERT_EQ(found.has_value(), tells_steps);
    if (!found) continue;
    EXPECT_EQ(std::get<core::RankHung>(found->second).no_progress_for, 30min);
    EXPECT_EQ(std::get<core::RankHung>(found->second).limit, 30min);
  }
}

TEST(Liveness, ADrainingAttemptIsNotBlamedButStoppedAgain) {
  AttemptWatch watch({.stop_grace = 30s}, 1, 1, kStart);
  watch.heard(0, {1, "step"}, kStart);
  core::Attempt attempt;
  attempt.state = core::AttemptState::kDraining;
  attempt.ranks.resize(1);
  watch.follow(attempt, kStart);
  EXPECT_TRUE(watch.overdue(kStart + 1min).empty());
  EXPECT_FALSE(watch.must_stop_again(kStart + 39s));
  EXPECT_TRUE(watch.must_stop_again(kStart + 40s));
  EXPECT_FALSE(watch.must_stop_again(kStart + 41s));
  EXPECT_TRUE(watch.must_stop_again(kStart + 80s));
}

TEST(Liveness, ADeafControllerGivesEveryoneFreshTime) {
  LiveRanks live_ranks;
  const core::AttemptKey key{1, 1};
  live_ranks.track(key, {}, 2, kStart, kStart);
  for (core::RankNumber r : {0U, 1U}) live_ranks.registered(key, r, kStart);
  const auto stopped = [](const core::AttemptKey&, core::RankNumber) { return executors::Vouch::kStopped; };
  EXPECT_TRUE(live_ranks.watch(round_at(kStart + 2s, false), stopped).facts.empty());
  // The controller was not running for a minute: its machine slept, its disk stood still.
  EXPECT_TRUE(live_ranks.watch(round_at(kStart + 62s, true), stopped).facts.empty());
  core::Millis now = kStart + 62s;
  for (; now < kStart + 64400ms; now += 100ms)
    ASSERT_TRUE(live_ranks.watch(round_at(now, false), stopped).facts.empty());
  now += 100ms;
  EXPECT_EQ(live_ranks.watch(round_at(now, false), stopped).facts.size(), 2U) << "but only fresh time, not amnesty";
}

TEST(Liveness, TimeToFindANewControllerIsGrantedThoughOneRankWasFaster) {
  LiveRanks live_ranks;
  const core::AttemptKey key{1, 1};
  live_ranks.track(key, {}, 2, kStart, kStart);
  for (core::RankNumber r : {0U, 1U}) live_ranks.registered(key, r, kStart);
  live_ranks.track(key, {}, 2, kStart, kStart + 10s);
  const auto stopped = [](const core::AttemptKey&, core::RankNumber) { return executors::Vouch::kStopped; };
  core::Millis now = kStart;
  for (; now < kStart + 12400ms; now += 100ms)
    ASSERT_TRUE(live_ranks.watch(round_at(now, false), stopped).facts.empty());
  EXPECT_EQ(live_ranks.watch(round_at(now + 200ms, false), stopped).facts.size(), 2U);
}

TEST(LostNodes, AreFoundWhenNobodyOnThemIsHeardAndTheOthersStandStill) {
  auto watch = on_nodes();
  stand(watch, {0, 1}, kStart + 59900ms);
  EXPECT_FALSE(watch.judge(2, executors::Vouch::kUnknown, kStart + 59900ms)) << "they may wait for what n2 does";
  stand(watch, {0, 1}, kStart + 60s);
  const auto finding = watch.judge(2, executors::Vouch::kUnknown, kStart + 60s);
  ASSERT_TRUE(finding);
  EXPECT_EQ(std::get<core::NodeLost>(*finding), (core::NodeLost{1, "n2", 60s}));
  EXPECT_FALSE(watch.judge(3, executors::Vouch::kUnknown, kStart + 60s)) << "said once for the whole node";
}

// A rank on another node has ended because its connection was lost.
TEST(LostNodes, AWitnessMakesWaitingUnnecessary) {
  auto watch = on_nodes();
  for (core::RankNumber r : {0U, 1U}) watch.heard(r, {101, "step"}, kStart + 500ms);
  for (core::RankNumber r : {2U, 3U}) watch.note(r, executors::Vouch::kNodeAnswers, kStart + 2600ms);
  EXPECT_FALSE(watch.lost_node(kStart + 2600ms)) << "the node answers";
  for (core::RankNumber r : {2U, 3U}) watch.note(r, executors::Vouch::kUnknown, kStart + 2600ms);
  EXPECT_FALSE(watch.lost_node(kStart + 2400ms)) << "not missed yet";
  const auto lost = watch.lost_node(kStart + 2600ms);
  ASSERT_TRUE(lost);
  EXPECT_EQ(std::get<core::NodeLost>(*lost).node, "n2");
  EXPECT_FALSE(watch.lost_node(kStart + 2700ms)) << "told once";
}

// The network is cut between the controller and one node. Its ranks work on with the others.
TEST(LostNodes, AreNotFoundWhileTheOthersGoOn) {
  auto watch = on_nodes();
  for (core::Step step = 101; step < 10'000; ++step) {
    const auto now = kStart + (step - 100) * 500ms;
    for (core::RankNumber r : {0U, 1U}) watch.heard(r, {step, "step"}, now);
    for (const auto rank : watch.overdue(now)) ASSERT_FALSE(watch.judge(rank, executors::Vouch::kUnknown, now)) << step;
  }
}

// The network is cut between the controller and all nodes.
TEST(LostNodes, AreFoundAfterALongTimeWhereNobodyIsHeard) {
  auto watch = on_nodes();
  std::vector<std::pair<core::Millis, std::string>> lost;
  for (core::Millis t{0}; t < 11min; t += 100ms) {
    for (const auto rank : watch.overdue(kStart + t)) {
      if (const auto fact = watch.judge(rank, executors::Vouch::kUnknown, kStart + t)) {
        lost.emplace_back(t, std::get<core::NodeLost>(*fact).node);
      }
    }
  }
  EXPECT_EQ(lost, (std::vector<std::pair<core::Millis, std::string>>{{10min, "n1"}, {10min, "n2"}})) << "each once";
}

TEST(LostNodes, OneRankHeardMakesItASilentRank) {
  auto watch = on_nodes();
  stand(watch, {0, 1, 3}, kStart + 60s);
  const auto finding = watch.judge(2, executors::Vouch::kUnknown, kStart + 60s);
  ASSERT_TRUE(finding);
  EXPECT_EQ(std::get<core::RankSilent>(*finding).rank, 2U);
}

// A power cut ends all heartbeats at once, but each rank's last one was some hundred milliseconds before it.
TEST(LostNodes, RanksNeedNotHaveSpokenLastAtTheSameMoment) {
  auto watch = on_nodes();
  stand(watch, {3}, kStart + 500ms);
  stand(watch, {0, 1}, kStart + 60s);
  const auto finding = watch.judge(2, executors::Vouch::kUnknown, kStart + 60s);
  ASSERT_TRUE(finding);
  EXPECT_TRUE(std::holds_alternative<core::NodeLost>(*finding));
}

// Rank 3 ended a moment ago, and its end is not told yet: without its node's word on it the node would look lost.
TEST(LostNodes, NeighboursAreAskedForThoughTheyAreNotOverdue) {
  auto watch = on_nodes();
  for (core::RankNumber r : {0U, 1U, 3U}) watch.heard(r, {101, "step"}, kStart + 500ms);
  EXPECT_EQ(watch.overdue(kStart + 2600ms), (std::vector<core::RankNumber>{2, 3}));
  EXPECT_FALSE(watch.judge(3, executors::Vouch::kGone, kStart + 2600ms)) << "asked, not judged";
  watch = on_nodes(false);
  watch.heard(3, {101, "step"}, kStart + 500ms);
  EXPECT_EQ(watch.overdue(kStart + 2600ms), (std::vector<core::RankNumber>{0, 1, 2})) << "of a scheduler's nodes alone";
}

TEST(LostNodes, OneRankVouchedForMakesItASilentRank) {
  for (const auto word : {executors::Vouch::kAlive, executors::Vouch::kStopped, executors::Vouch::kGone}) {
    auto watch = on_nodes();
    stand(watch, {0, 1}, kStart + 60s);
    watch.note(3, word, kStart + 60s);
    const auto finding = watch.judge(2, executors::Vouch::kUnknown, kStart + 60s);
    ASSERT_TRUE(finding);
    EXPECT_TRUE(std::holds_alternative<core::RankSilent>(*finding));
  }
}

// Somebody has stopped the whole step: as silent as a node without power, on a node that is well.
TEST_F(LostNodesStory, OneThatAnswersHasSilentRanksAndOneThatIsBeingAskedIsWaitedFor) {
  auto watch = on_nodes();
  stand(watch, {0, 1}, kStart + 60s);
  EXPECT_FALSE(watch.judge(2, executors::Vouch::kAsking, kStart + 60s));
  stand(watch, {2}, kStart + 46s);
  EXPECT_FALSE(watch.judge(2, executors::Vouch::kNodeAnswers, kStart + 60'900ms));
  const auto finding = watch.judge(2, executors::Vouch::kNodeAnswers, kStart + 61s);
  ASSERT_TRUE(finding);
  tell(core::silent_text(std::get<core::RankSilent>(*finding)));
}

TEST(LostNodes, ARankThatHasLeftSaysNothingOfItsNode) {
  auto watch = on_nodes();
  core::Attempt attempt;
  attempt.queued_at = core::Time{};
  attempt.state = core::AttemptState::kRunning;
  attempt.ranks.resize(4);
  attempt.ranks[3].state = core::RankState::kExited;
  watch.follow(attempt, kStart);
  stand(watch, {0, 1}, kStart + 60s);
  const auto finding = watch.judge(2, executors::Vouch::kUnknown, kStart + 60s);
  ASSERT_TRUE(finding);
  EXPECT_TRUE(std::holds_alternative<core::NodeLost>(*finding));
}

TEST(LostNodes, ThisMachineIsNever) {
  auto watch = on_nodes(false);
  stand(watch, {0, 1}, kStart + 60s);
  const auto finding = watch.judge(2, executors::Vouch::kUnknown, kStart + 60s);
  ASSERT_TRUE(finding);
  EXPECT_TRUE(std::holds_alternative<core::RankSilent>(*finding));
}

// Another rank has come, so musterd can be reached from there. That says nothing of the way of this one.
TEST_F(LivenessStory, ARankThatNeverComesIsSuspectedAndWaitedFor) {
  AttemptWatch watch({}, 2, 1, kStart);
  std::optional<core::Millis> suspected, ended;
  for (core::Millis t{0}; t < 20min && !ended; t += 500ms) {
    const auto now = kStart + t;
    watch.heard(0, {0, "init"}, now);
    for (const auto rank : watch.overdue(now)) {
      ASSERT_EQ(rank, 1U);
      if (watch.judge(rank, executors::Vouch::kAlive, now)) ended = t;
    }
    const auto told = watch.suspicion(now, now);
    if (!told) continue;
    tell(core::suspected_text(std::get<core::AttemptSuspected>(*told)));
    suspected = t;
  }
  EXPECT_EQ(suspected, 2min);
  EXPECT_EQ(ended, 12min);
}

// Ranks that make steps cannot wait for it, so it is there.
TEST(Liveness, ARankThatIsNeverHeardEndsNothingWhileAnotherGoesOn) {
  AttemptWatch watch({}, 2, 1, kStart);
  for (core::Millis t{0}; t < 1h; t += 500ms) {
    watch.heard(0, {t / 500ms, "step"}, kStart + t);
    for (const auto rank : watch.overdue(kStart + t))
      ASSERT_FALSE(watch.judge(rank, executors::Vouch::kAlive, kStart + t));
  }
}

TEST_F(SuspicionStory, OfRanksThatAreNotHeardIsToldOnceAndTakenBackWhenTheyAreHeard) {
  auto watch = on_nodes();
  EXPECT_FALSE(watch.suspicion(kStart + 14'900ms, kStart + 14'900ms));
  stand(watch, {0, 1}, kStart + 15s);
  const auto told = watch.suspicion(kStart + 15s, kStart + 15s);
  ASSERT_TRUE(told);
  const auto& suspected = std::get<core::AttemptSuspected>(*told);
  EXPECT_EQ(suspected.of, core::Suspicion::kUnheard);
  EXPECT_EQ(suspected.node, "n2");
  tell(core::suspected_text(suspected));
  EXPECT_FALSE(watch.looks_hung());
  EXPECT_FALSE(watch.suspicion(kStart + 20s, kStart + 20s)) << "once";
  watch.fresh_start(kStart + 30s);
  EXPECT_FALSE(watch.suspicion(kStart + 30s, kStart + 30s)) << "a deaf controller has heard nobody";
  stand(watch, {2}, kStart + 31s);
  EXPECT_FALSE(watch.suspicion(kStart + 31s, kStart + 31s)) << "one of them";
  stand(watch, {3}, kStart + 32s);
  const auto over = watch.suspicion(kStart + 32s, kStart + 32s);
  ASSERT_TRUE(over);
  tell(core::suspicion_over_text(std::get<core::SuspicionOver>(*over)));
}

TEST_F(SuspicionStory, NamesTheRanksOfSeveralNodesByTheirNumber) {
  auto watch = on_nodes();
  const auto told = watch.suspicion(kStart + 15s, kStart + 15s);
  ASSERT_TRUE(told);
  tell(core::suspected_text(std::get<core::AttemptSuspected>(*told)));
}

/// An attempt that an earlier musterd has suspected, after this one has taken it over.
AttemptWatch taken_over(core::Suspicion suspicion, LivenessRules rules = {}) {
  AttemptWatch watch(rules, 2, 1, kStart);
  core::Attempt attempt;
  attempt.state = core::AttemptState::kRunning;
  attempt.suspicion = suspicion;
  attempt.ranks.resize(2);
  for (auto& rank : attempt.ranks) rank.state = core::RankState::kRunning;
  watch.follow(attempt, kStart);
  watch.fresh_start(kStart + 10s);
  return watch;
}

TEST_F(SuspicionStory, OfAnEarlierControllerIsOverWhenAllRanksGoOn) {
  for (const bool reports_all : {true, false}) {
    auto watch = taken_over(core::Suspicion::kHung, {.heartbeats = reports_all});
    for (core::RankNumber r : {0U, 1U}) watch.came(r, kStart + 1s);
    const auto say = [&](core::RankNumber rank, core::Step step, core::Millis at) {
      if (rank == 0 || reports_all) watch.heard(rank, {step, "step"}, kStart + at);
    };
    for (core::RankNumber r : {0U, 1U}) say(r, 500, 2s);
    EXPECT_FALSE(watch.suspicion(kStart + 2s, kStart + 2s)) << "it may stand at that step since an hour";
    say(1, 500, 3s);
    say(0, 501, 3s);
    const auto over = watch.suspicion(kStart + 3s, kStart + 3s);
    EXPECT_EQ(over.has_value(), !reports_all) << "the other rank may be the one that hangs";
    if (over) continue;
    say(1, 501, 4s);
    const auto then = watch.suspicion(kStart + 4s, kStart + 4s);
    ASSERT_TRUE(then);
    tell(core::suspicion_over_text(std::get<core::SuspicionOver>(*then)));
    EXPECT_FALSE(watch.suspicion(kStart + 5s, kStart + 5s)) << "once";
  }
}

TEST_F(SuspicionStory, OfAnEarlierControllerIsOverWhenAllRanksAreHeard) {
  auto watch = taken_over(core::Suspicion::kUnheard);
  watch.came(0, kStart + 1s);
  EXPECT_FALSE(watch.suspicion(kStart + 1s, kStart + 1s));
  watch.came(1, kStart + 2s);
  const auto over = watch.suspicion(kStart + 2s, kStart + 2s);
  ASSERT_TRUE(over);
  tell(core::suspicion_over_text(std::get<core::SuspicionOver>(*over)));
}

TEST(Suspicion, OfAnEarlierControllerIsToldAnewWhereItStillHolds) {
  for (const auto before : {core::Suspicion::kHung, core::Suspicion::kUnheard}) {
    auto watch = taken_over(before);
    std::vector<core::EventBody> told;
    for (core::Millis t{0}; t < 20min; t += 500ms) {
      for (core::RankNumber r : {0U, 1U}) {
        if (r == 0 || before == core::Suspicion::kHung) watch.heard(r, {500, "step"}, kStart + t);
      }
      EXPECT_TRUE(watch.findings(kStart + t).empty());
      if (const auto fact = watch.suspicion(kStart + t, kStart + t)) told.push_back(*fact);
    }
    ASSERT_EQ(told.size(), 1U);
    EXPECT_EQ(std::get<core::AttemptSuspected>(told[0]).of, before);
  }
}

TEST(Suspicion, OfThisControllerIsNotTakenForThatOfAnEarlierOne) {
  auto watch = on_nodes();
  core::Attempt attempt;
  attempt.state = core::AttemptState::kRunning;
  attempt.ranks.resize(4);
  attempt.suspicion = core::Suspicion::kHung;
  watch.follow(attempt, kStart);
  for (core::Step step = 101; step < 110; ++step) {
    for (core::RankNumber r = 0; r < 4; ++r) watch.heard(r, {step, "step"}, kStart + step * 500ms - 50s);
    EXPECT_FALSE(watch.suspicion(kStart + step * 500ms - 50s, kStart + step * 500ms - 50s));
  }
}

/// The ranks of any program on a scheduler's nodes, by rank.
AttemptWatch of_command(const std::vector<std::string>& nodes) {
  AttemptWatch watch({.heartbeats = false}, static_cast<std::uint32_t>(nodes.size()), 1, kStart);
  core::Attempt attempt;
  attempt.state = core::AttemptState::kRunning;
  attempt.queued_at = core::Time{};
  attempt.ranks.resize(nodes.size());
  for (std::size_t r = 0; r < nodes.size(); ++r) attempt.ranks[r].node = nodes[r];
  watch.follow(attempt, kStart);
  return watch;
}

TEST(LostNodes, OfAnyProgramsTasksToo) {
  auto watch = of_command({"n1"});
  watch.judge(0, executors::Vouch::kAlive, kStart);
  EXPECT_FALSE(watch.judge(0, executors::Vouch::kAsking, kStart + 10min));
  EXPECT_FALSE(watch.judge(0, executors::Vouch::kNodeAnswers, kStart + 10min - 1s));
  const auto finding = watch.judge(0, executors::Vouch::kNodeAnswers, kStart + 10min);
  ASSERT_TRUE(finding);
  EXPECT_TRUE(std::holds_alternative<core::RankSilent>(*finding));
}

// Only the tasks beside its ranks are heard.
TEST(LostNodes, TheRanksOfACommandAreMissedOnceTheirTasksHaveSpoken) {
  auto watch = of_command({"n1", "n1", "n2"});
  const auto round = [&](core::Millis now, const std::vector<executors::Vouch>& words) {
    std::vector<core::EventBody> found;
    const auto asked = watch.overdue(now);
    for (const auto rank : asked) watch.note(rank, words[rank], now);
    for (const auto rank : asked) {
      if (auto fact = watch.judge(rank, words[rank], now)) found.push_back(*fact);
    }
    return found;
  };
  const auto alive = executors::Vouch::kAlive, unknown = executors::Vouch::kUnknown;
  // Lines before the ranks may take long: nobody has spoken yet, and nobody is missed.
  for (core::Millis t{0}; t < 5min; t += 1s) ASSERT_TRUE(round(kStart + t, {unknown, unknown, unknown}).empty());
  const auto begun = kStart + 5min;
  ASSERT_TRUE(round(begun, {alive, alive, alive}).empty());
  std::optional<core::Millis> lost_at;
  for (core::Millis t{0}; t < 11min; t += 100ms) {
    for (const auto& fact : round(begun + t, {alive, unknown, unknown})) {
      EXPECT_FALSE(lost_at) << "told once, and n1 is there: one of its ranks is";
      EXPECT_EQ(std::get<core::NodeLost>(fact).node, "n2");
      lost_at = t;
    }
  }
  ASSERT_TRUE(lost_at);
  EXPECT_GE(*lost_at, 10min);
  EXPECT_LE(*lost_at, 10min + 1s);
}

// Slurm stops a job's processes for hours, and lets them go on: nobody was silent, lost or hung.
TEST(Liveness, RanksThatAreSuspendedAreMissedByNobody) {
  auto recipe = on_nodes();
  for (core::Millis t{0}; t < 2h; t += 500ms) {
    for (const auto rank : recipe.overdue(kStart + t))
      ASSERT_FALSE(recipe.judge(rank, executors::Vouch::kSuspended, kStart + t));
  }
  stand(recipe, {0, 1, 2, 3}, kStart + 2h);
  EXPECT_TRUE(recipe.findings(kStart + 2h).empty());
  auto command = of_command({"n1"});
  command.note(0, executors::Vouch::kAlive, kStart);
  for (core::Millis t{0}; t < 2h; t += 500ms) {
    for (const auto rank : command.overdue(kStart + t))
      ASSERT_FALSE(command.judge(rank, executors::Vouch::kSuspended, kStart + t));
  }
}

/// When the time limit is told of one that runs for 20 s, is suspended for two hours, and then goes on.
std::optional<core::Millis> limit_told(AttemptWatch watch, bool blind_now_and_then) {
  watch.set_started(kStart);
  watch.set_time_limit(60s, true);
  for (core::Millis t{0}; t < 3h; t += 500ms) {
    const auto now = kStart + t;
    const bool suspended = t >= 20s && t < 2h;
    if (blind_now_and_then && t.count() % 60'000 == 0) watch.fresh_start(now);
    for (core::RankNumber r = 0; r < watch.world_size() && watch.rules().heartbeats && !suspended; ++r) {
      watch.heard(r, {100 + static_cast<core::Step>(t.count()), "step"}, now);
    }
    for (const auto rank : watch.overdue(now)) {
      EXPECT_FALSE(watch.judge(rank, suspended ? executors::Vouch::kSuspended : executors::Vouch::kAlive, now));
    }
    if (!watch.findings(now).empty()) return t;
  }
  return std::nullopt;
}

// Slurm stops its clock with it. Told by ours it would be stopped unsaved, and called timed out.
TEST(Liveness, TheTimeLimitStandsStillWhileItIsSuspended) {
  for (const bool blind : {false, true}) {
    for (auto watch : {on_nodes(), of_command({"n1"})}) {
      const auto told = limit_told(watch, blind);
      ASSERT_TRUE(told) << "it comes all the same";
      // 30 s of the limit are for the save; 20 s had passed.
      EXPECT_GE(*told, 2h + 8s);
      EXPECT_LE(*told, 2h + 12s);
    }
  }
}

TEST(LostNodes, ATaskThatTellsOfAnEndSpeaksToo) {
  auto watch = of_command({"n1"});
  for (core::Millis t{0}; t < 1min; t += 500ms) {
    for (const auto rank : watch.overdue(kStart + t)) {
      EXPECT_FALSE(watch.judge(rank, t < 1s ? executors::Vouch::kAlive : executors::Vouch::kEnded, kStart + t));
    }
  }
}

TEST(LostNodes, EveryoneIsAskedBeforeAnyoneIsJudged) {
  LiveRanks live_ranks;
  const core::AttemptKey key{1, 1};
  core::Job job;
  job.id = 1;
  auto& attempt = job.attempts.emplace_back();
  attempt.number = 1;
  attempt.queued_at = core::Time{};
  attempt.ranks.resize(2);
  for (auto& rank : attempt.ranks) rank.node = "n1";
  live_ranks.track(key, {}, 2, kStart, kStart);
  live_ranks.follow(job, kStart);
  for (core::RankNumber r : {0U, 1U}) live_ranks.registered(key, r, kStart);
  core::Millis now = kStart;
  const auto second_alive = [](const core::AttemptKey&, core::RankNumber rank) {
    return rank == 1 ? executors::Vouch::kAlive : executors::Vouch::kUnknown;
  };
  std::vector<Watched::Fact> facts;
  for (; now <= kStart + 10min; now += 100ms) {
    for (auto& fact : live_ranks.watch(round_at(now, false), second_alive).facts) {
      if (!std::holds_alternative<core::AttemptSuspected>(fact.body)) facts.push_back(std::move(fact));
    }
  }
  ASSERT_EQ(facts.size(), 2U);
  EXPECT_EQ(std::get<core::RankSilent>(facts[0].body).rank, 0U) << "no lost node";
}

TEST(Liveness, InTheQueueNobodyIsWatchedAndAllBeginsWithTheStart) {
  AttemptWatch watch({.join_within = 20s, .time_limit = 60s}, 1, 1, kStart);
  core::Attempt attempt;
  attempt.state = core::AttemptState::kQueued;
  attempt.queued_at = core::Time{};
  attempt.ranks.resize(1);
  watch.follow(attempt, kStart);
  EXPECT_TRUE(watch.overdue(kStart + 24h).empty());
  EXPECT_TRUE(watch.findings(kStart + 24h).empty());
  attempt.state = core::AttemptState::kStarting;
  const auto start = kStart + 24h;
  watch.follow(attempt, start);
  EXPECT_TRUE(watch.overdue(start + 19900ms).empty());
  EXPECT_EQ(watch.overdue(start + 20s).size(), 1U);
  EXPECT_TRUE(watch.findings(start + 59900ms).empty());
  EXPECT_EQ(watch.findings(start + 60s).size(), 1U);
}

struct Limit {
  core::Millis limit, grace;
  bool hard;
  core::Millis asked_at;
};

TEST(Liveness, AHardLimitLeavesTheTimeToSave) {
  for (const auto& row : {Limit{100s, 30s, true, 70s}, Limit{100s, 30s, false, 100s}, Limit{40s, 30s, true, 20s},
                          Limit{60s, 30s, true, 30s}, Limit{100s, 0s, true, 100s}}) {
    SCOPED_TRACE(row.asked_at.count());
    AttemptWatch watch({.stop_grace = row.grace, .heartbeats = false}, 1, 1, kStart);
    watch.set_time_limit(row.limit, row.hard);
    EXPECT_TRUE(watch.findings(kStart + row.asked_at - 1ms).empty());
    EXPECT_EQ(watch.findings(kStart + row.asked_at).size(), 1U);
  }
}

TEST(Liveness, AChangedTimeLimitIsToldAnewUnlessItIsTheSame) {
  AttemptWatch watch({.time_limit = 10s, .heartbeats = false}, 1, 1, kStart);
  ASSERT_EQ(watch.findings(kStart + 10s).size(), 1U);
  watch.set_time_limit(10s, false);
  EXPECT_TRUE(watch.findings(kStart + 11s).empty());
  watch.set_time_limit(20s, false);
  EXPECT_TRUE(watch.findings(kStart + 19s).empty());
  EXPECT_EQ(watch.findings(kStart + 20s).size(), 1U);
  watch.set_time_limit(0s, false);
  EXPECT_TRUE(watch.findings(kStart + 1000h).empty()) << "0: none";
}

TEST(Liveness, TheTimeLimitIsToldOnce) {
  AttemptWatch watch({.time_limit = 10s, .heartbeats = false}, 1, 1, kStart);
  EXPECT_TRUE(watch.findings(kStart + 9900ms).empty());
  ASSERT_EQ(watch.findings(kStart + 10s).size(), 1U);
  EXPECT_TRUE(watch.findings(kStart + 11s).empty());
}

}  // namespace
}  // namespace ranks
