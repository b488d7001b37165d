// Goal: a network that is cut between musterd and the ranks ends no attempt that works, whatever the ranks do
// meanwhile; and what fails is known at the time that docs/liveness.md promises. Method: stories over injected time.
// Ranks of a few lines train together, evaluate and save; musterd hears those that are not cut off, and asks nodes as
// its rounds do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "controller/ranks/live_ranks.h"

namespace ranks {
namespace {

using namespace std::chrono_literals;
using core::Millis;
using executors::Vouch;

constexpr Millis kBeginning{1'000'000};
constexpr core::AttemptKey kAttempt{1, 1};

/// The kind of job that runs, and how musterd hears of it.
struct Kind {
  const char* name;
  bool recipe = true;         // heartbeats of each rank; else a program whose agents tell
  std::uint32_t reports = 4;  // ranks that report steps
  bool scheduled = true;      // on two nodes of a scheduler; else on this machine
};

/// Four ranks, two a node. A step takes half a second, and all ranks wait for one another.
class Cluster {
 public:
  /// `tick`: from one round of musterd to the next.
  explicit Cluster(const Kind& kind, Millis tick) : kind_(kind), tick_(tick) {
    LivenessRules rules;
    rules.heartbeats = kind.recipe;
    live.track(kAttempt, rules, kRanks, now, now);
    job_.id = kAttempt.job;
    auto& attempt = job_.attempts.emplace_back();
    attempt.number = kAttempt.number;
    attempt.state = core::AttemptState::kRunning;
    if (kind.scheduled) attempt.queued_at = core::Time{};
    attempt.ranks.resize(kRanks);
    for (std::uint32_t r = 0; r < kRanks; ++r) attempt.ranks[r].node = node_of(r);
    live.follow(job_, now);
  }

  /// Time passes, until an attempt's end is found.
  bool pass(Millis time) {
    for (const auto until = now + time; now < until && !ended; now += tick_) round();
    return !ended.has_value();
  }
  /// Rank 0 does something in silence, and the others wait for it. `section`: its name for that; empty: none.
  bool pause(Millis time, const std::string& section) {
    is_paused_ = true;
    section_ = section.empty() ? "step" : section;
    const bool goes_on = pass(time);
    is_paused_ = false;
    section_ = "step";
    return goes_on;
  }

  static std::string node_of(core::RankNumber rank) { return rank < 2 ? "n1" : "n2"; }

  LiveRanks live;
  Millis now = kBeginning;
  /// Whom musterd cannot hear, nor ask.
  std::function<bool(core::RankNumber)> is_cut = [](core::RankNumber) { return false; };
  std::vector<Vouch> words{kRanks, Vouch::kAlive};  // of the nodes, where they can be asked
  std::vector<bool> silent = std::vector<bool>(kRanks);
  bool stands = false;  // no rank makes a step
  std::optional<core::EventBody> ended;
  Millis ended_at{0};
  std::vector<std::string> told;  // "suspected", "over"

 private:
  static constexpr std::uint32_t kRanks = 4;

  void round() {
    const auto gone = now - kBeginning;
    if (!stands && !is_paused_ && gone % 500ms == 0ms) ++step_;
    if (gone % 500ms == 0ms) speak();
    const auto found = live.watch({now, false, now, [](Millis) { return Millis(0); }},
                                  [&](const core::AttemptKey&, core::RankNumber rank) {
                                    return is_cut(rank) && kind_.scheduled ? Vouch::kUnknown : words[rank];
                                  });
    for (const auto& fact : found.facts) {
      if (std::holds_alternative<core::AttemptSuspected>(fact.body)) {
        told.push_back("suspected");
      } else if (std::holds_alternative<core::SuspicionOver>(fact.body)) {
        told.push_back("over");
      } else if (!ended) {
        ended = fact.body;
        ended_at = now;
      }
    }
  }
  void speak() {
    for (core::RankNumber rank = 0; rank < kRanks; ++rank) {
      if (is_cut(rank) || silent[rank] || (!kind_.recipe && rank >= kind_.reports)) continue;
      muster::v1::HeartbeatRequest beat;
      beat.set_step(step_);
      // A recipe enters its sections together; of any other program rank 0 tells what it does.
      const auto& section = kind_.recipe || rank == 0 ? section_ : kStep;
      beat.set_section(muster::v1::SECTION_STEP);
      if (section != kStep) beat.set_section_name(section);
      live.heartbeat(kAttempt, rank, beat, now);
    }
  }

  static inline const std::string kStep = "step";
  const Kind kind_;
  const Millis tick_;
  core::Job job_;
  core::Step step_ = 0;
  std::string section_ = kStep;
  bool is_paused_ = false;
};

/// Whom a partition cuts off.
struct Part {
  const char* name;
  bool n1, n2;
  bool has(core::RankNumber rank) const { return rank < 2 ? n1 : n2; }
};

constexpr Kind kKinds[]{{"Recipe"},
                        {"RecipeHere", true, 4, false},
                        {"Program", false, 4},
                        {"ProgramOfWhichRank0Reports", false, 1},
                        {"ProgramThatReportsNothing", false, 0},
                        {"ProgramHere", false, 4, false}};
constexpr Part kParts[]{{"All", true, true}, {"TheNodeOfRank0", true, false}, {"TheOtherNode", false, true}};

class Partitions : public ::testing::TestWithParam<std::tuple<Kind, Part, int>> {
 protected:
  /// Before it muster has learned what is usual. `does`: what the ranks do while it lasts; it returns whether the
  /// attempt goes on.
  static void cut(const std::function<bool(Cluster&, Millis)>& does) {
    const auto& [kind, part, seconds] = GetParam();
    Cluster cluster(kind, 500ms);
    ASSERT_TRUE(cluster.pass(2min));
    cluster.is_cut = [&part](core::RankNumber rank) { return part.has(rank); };
    ASSERT_TRUE(does(cluster, std::chrono::seconds(seconds)));
    cluster.is_cut = [](core::RankNumber) { return false; };
    ASSERT_TRUE(cluster.pass(5min));
    EXPECT_TRUE(cluster.told.empty() || cluster.told.back() == "over") << "nothing stays suspected";
  }
};

TEST_P(Partitions, EndNothingInATraining) {
  cut([](Cluster& cluster, Millis time) { return cluster.pass(time); });
}

TEST_P(Partitions, EndNothingWhileRank0EvaluatesInSilence) {
  for (const char* section : {"", "evaluate"}) {
    if (std::string(section).empty() && std::get<0>(GetParam()).recipe) continue;  // a recipe names what it does
    for (const auto pause : {30s, 90s, 400s}) {
      SCOPED_TRACE(section + std::to_string(pause.count()));
      cut([&](Cluster& cluster, Millis time) {
        const auto begun = cluster.now;
        if (!cluster.pass(2s) || !cluster.pause(pause, section)) return false;
        return cluster.pass(std::max(time - (cluster.now - begun), Millis(0)));
      });
    }
  }
}

// The ranks that are heard only see that there are no steps.
TEST_P(Partitions, EndNothingWhileARecipeWaitsForADiskForHalfAMinute) {
  cut([](Cluster& cluster, Millis time) {
    const auto begun = cluster.now;
    return cluster.pass(2s) && cluster.pause(40s, "") &&
           cluster.pass(std::max(time - (cluster.now - begun), Millis(0)));
  });
}

TEST_P(Partitions, ThatBeginWhileRank0EvaluatesEndNothing) {
  const auto& [kind, part, seconds] = GetParam();
  Cluster cluster(kind, 500ms);
  ASSERT_TRUE(cluster.pass(2min));
  ASSERT_TRUE(cluster.pause(10s, "evaluate"));
  cluster.is_cut = [&part = part](core::RankNumber rank) { return part.has(rank); };
  ASSERT_TRUE(cluster.pause(std::chrono::seconds(seconds), "evaluate"));
  cluster.is_cut = [](core::RankNumber) { return false; };
  ASSERT_TRUE(cluster.pass(5min));
}

INSTANTIATE_TEST_SUITE_P(Table, Partitions,
                         ::testing::Combine(::testing::ValuesIn(kKinds), ::testing::ValuesIn(kParts),
                                            ::testing::Values(12, 25, 60, 300)),
                         [](const ::testing::TestParamInfo<Partitions::ParamType>& row) {
                           return std::string(std::get<0>(row.param).name) + "Of" + std::get<1>(row.param).name +
                                  "For" + std::to_string(std::get<2>(row.param)) + "s";
                         });

/// A failure two minutes after the start, and the time when it is known.
struct Loss {
  const char* name;
  Kind kind;
  std::function<void(Cluster&)> fails;
  Millis not_before, by;
  const char* ends_as;
};

class RealLosses : public ::testing::TestWithParam<Loss> {};

TEST_P(RealLosses, AreKnownAtTheTimeThatIsPromised) {
  const auto& loss = GetParam();
  Cluster cluster(loss.kind, 100ms);
  ASSERT_TRUE(cluster.pass(2min));
  const auto failed = cluster.now;
  cluster.stands = true;  // the others wait for what is lost
  loss.fails(cluster);
  cluster.pass(30min);
  ASSERT_TRUE(cluster.ended);
  EXPECT_EQ(core::type_name(*cluster.ended), loss.ends_as);
  EXPECT_GE(cluster.ended_at - failed, loss.not_before);
  EXPECT_LE(cluster.ended_at - failed, loss.by);
}

void lose_rank_3(Cluster& cluster, Vouch word) {
  cluster.silent[3] = true;
  cluster.words[3] = word;
}
void lose_n2(Cluster& cluster) {
  cluster.is_cut = [](core::RankNumber rank) { return rank >= 2; };
}
void lose_all(Cluster& cluster) {
  cluster.is_cut = [](core::RankNumber) { return true; };
}
void hang(Cluster&) {}

INSTANTIATE_TEST_SUITE_P(
    Table, RealLosses,
    ::testing::Values(
        Loss{"AStoppedRank", kKinds[0], [](Cluster& c) { lose_rank_3(c, Vouch::kStopped); }, 2s, 2600ms, "rank_silent"},
        Loss{"AStoppedRankHere", kKinds[1], [](Cluster& c) { lose_rank_3(c, Vouch::kStopped); }, 2s, 2600ms,
             "rank_silent"},
        Loss{"AStoppedRankOfAProgram", kKinds[2], [](Cluster& c) { lose_rank_3(c, Vouch::kStopped); }, 2s, 3200ms,
             "rank_silent"},
        Loss{"AProcessThatIsGone", kKinds[0], [](Cluster& c) { lose_rank_3(c, Vouch::kGone); }, 4s, 4700ms,
             "rank_silent"},
        Loss{"ARankThatIsNotHeardThoughItsProcessIsSeen", kKinds[0], [](Cluster& c) { lose_rank_3(c, Vouch::kAlive); },
             59s, 61s, "rank_silent"},
        Loss{"ANodeWithoutPower", kKinds[0], lose_n2, 59s, 61s, "node_lost"},
        Loss{"ANodeWithoutPowerUnderAProgram", kKinds[2], lose_n2, 10min - 1s, 10min + 1s, "node_lost"},
        Loss{"AllNodes", kKinds[0], lose_all, 10min - 1s, 10min + 1s, "node_lost"},
        Loss{"AllNodesOfAProgramThatReportsNothing", kKinds[4], lose_all, 10min - 1s, 10min + 1s, "node_lost"},
        Loss{"AHangOfARecipe", kKinds[0], hang, 59s, 61s, "rank_hung"},
        Loss{"AHangOfAProgram", kKinds[2], hang, 10min - 1s, 10min + 1s, "rank_hung"}),
    [](const ::testing::TestParamInfo<Loss>& row) { return std::string(row.param.name); });

// The kernel of the lost node closed its connections, or its processes were killed with it.
TEST(RealLossesOfANode, AreKnownAtOnceWhereARankElsewhereLosesItsConnection) {
  Cluster cluster(kKinds[0], 100ms);
  ASSERT_TRUE(cluster.pass(2min));
  cluster.stands = true;
  lose_n2(cluster);
  ASSERT_TRUE(cluster.pass(2700ms));
  const auto lost = cluster.live.lost_node(kAttempt, {cluster.now, false, cluster.now, [](Millis) { return 0ms; }});
  ASSERT_TRUE(lost);
  EXPECT_EQ(std::get<core::NodeLost>(*lost).node, "n2");
}

}  // namespace
}  // namespace ranks
