// Goal: what people read of a suspicion is true for this job, and it is judged anew by the next musterd.
// Method: the real controller without threads; ranks and clock of our own.
#include <gmock/gmock.h>

#include "tests/controller/service/bench.h"

namespace service::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Suspicions : public ::testing::TestWithParam<StoreKind> {
 protected:
  /// A program of so many ranks that reports a hundred steps, of which rank 0 tells, or all.
  core::JobId trained(const muster::v1::SubmitRequest& request, std::uint32_t reporting = 1) {
    const auto id = bench.submit(request);
    reporting_ = reporting;
    bench.train(id, reporting);
    return id;
  }
  void stand(core::JobId id, core::Millis time) { bench.stand(id, time, reporting_); }

  Bench bench{GetParam()};
  std::uint32_t reporting_ = 1;
};
INSTANTIATE_TEST_SUITE_P(Stores, Suspicions, ::testing::Values(StoreKind::kMemory, StoreKind::kSqlite), store_name);

TEST_P(Suspicions, OfAHangSayWhatIsLearned) {
  const auto id = trained(command_request("a"));
  stand(id, 15s);
  EXPECT_THAT(bench.job(id).reason(), HasSubstr("ends after 10 min without progress and output"));
  EXPECT_THAT(bench.why(id).action(), HasSubstr("let the program name it as a section, or set liveness.hung_after"));
  EXPECT_THAT(bench.job(id).hang_limit(),
              HasSubstr("in section step; a hang ends the attempt after 10 min without progress and output"));
  stand(id, 10min);
  const auto reason = bench.attempt(id, 1).reason();
  EXPECT_THAT(reason, HasSubstr("rank 0 made no progress for 10 min"));
  EXPECT_THAT(reason,
              HasSubstr(" in section step, and nothing came out; usual is at most 10 s, learned from 98 steps"));
}

TEST_P(Suspicions, OfAHangNameTheUsersTime) {
  auto request = command_request("a");
  request.mutable_spec()->mutable_liveness()->set_hung_after_ms(60'000);
  const auto id = trained(request);
  stand(id, 15s);
  EXPECT_THAT(bench.job(id).reason(), HasSubstr("ends after 1 min without progress, as liveness.hung_after says"));
  EXPECT_THAT(bench.why(id).action(), HasSubstr("set a longer liveness.hung_after than 1 min"));
  EXPECT_THAT(bench.why(id).action(), Not(HasSubstr("section"))) << "a section changes nothing of it";
  stand(id, 1min);
  EXPECT_EQ(bench.attempt(id, 1).reason(),
            "rank 0 made no progress for 1 min in section step; liveness.hung_after is 1 min");
}

TEST_P(Suspicions, OfAHangOfARecipeAdviseNoSection) {
  const auto id = trained(recipe_request("a"), 2);
  stand(id, 15s);
  EXPECT_THAT(bench.job(id).reason(), HasSubstr("ends after 1 min without progress and output"));
  EXPECT_THAT(bench.why(id).action(), HasSubstr("set liveness.hung_after to more than it takes"));
  EXPECT_THAT(bench.why(id).action(), Not(HasSubstr("section")));
}

TEST_P(Suspicions, OfAHangWhereRank0AloneReportsSayNothingOfTheOthers) {
  const auto id = trained(command_request("a", 4));
  stand(id, 15s);
  EXPECT_THAT(bench.job(id).reason(),
              HasSubstr("no rank is known to go on; only rank 0 reports, and it has made no progress since"));
}

// The next musterd knows nothing of the ranks, and the status says what the one before has suspected.
TEST_P(Suspicions, AreJudgedAnewByTheNextMusterd) {
  const auto id = trained(command_request("a"));
  stand(id, 15s);
  ASSERT_EQ(bench.job(id).status(), "running, suspected");
  bench.crash();
  bench.start();
  stand(id, 30s);
  EXPECT_EQ(bench.job(id).status(), "running, suspected") << "it stands there still";
  EXPECT_EQ(bench.count_events(id, "suspicion_over"), 0);
  bench.heartbeat({id, 1}, 0, 101);
  bench.tick();
  EXPECT_EQ(bench.job(id).status(), "running");
  EXPECT_EQ(bench.job(id).reason(), "attempt 1: running");
  EXPECT_EQ(bench.count_events(id, "suspicion_over"), 1);
}

TEST_P(Suspicions, OfRanksThatAreNotHeardAreOverWhenTheNextMusterdHearsThem) {
  const auto id = trained(recipe_request("a"), 2);
  core::Step step = 100;
  const auto one = [&] { bench.heartbeat({id, 1}, 0, ++step); };
  bench.pass(16s, one);
  ASSERT_EQ(bench.job(id).status(), "running, suspected");
  bench.restart();
  bench.pass(9s, one);
  EXPECT_EQ(bench.job(id).status(), "running, suspected");
  bench.pass(1s, [&] {
    one();
    bench.heartbeat({id, 1}, 1, step);
  });
  EXPECT_EQ(bench.job(id).status(), "running");
  EXPECT_EQ(bench.count_events(id, "suspicion_over"), 1);
}

}  // namespace
}  // namespace service::testing
