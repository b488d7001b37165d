// Goal: both stores keep the contract of controller/store/store.h.
// Method: one typed suite; each test runs on a fresh store of each kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "tests/controller/core/story.h"
#include "tests/controller/store/kinds.h"
#include "tests/controller/store/saga.h"

namespace test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

template <typename Kind>
class StoreContract : public testing::Test {
 protected:
  store::Store& store() { return kind_.get(); }

 private:
  Kind kind_;
};
TYPED_TEST_SUITE(StoreContract, StoreKinds);

template <typename Work>
store::Error::Kind kind_of_failure(Work work) {
  try {
    work();
  } catch (const store::Error& error) {
    return error.kind();
  }
  ADD_FAILURE() << "nothing was thrown";
  return store::Error::Kind::kOther;
}

TYPED_TEST(StoreContract, AnEmptyStoreHasNothing) {
  auto& store = this->store();
  EXPECT_EQ(store.next_job_id(), 1);
  EXPECT_EQ(store.last_event_id(), 0);
  EXPECT_EQ(store.load(1), std::nullopt);
  EXPECT_EQ(store.spec_json(1), std::nullopt);
  EXPECT_EQ(store.find_request("r"), std::nullopt);
  EXPECT_THAT(store.load_open(), IsEmpty());
  EXPECT_TRUE(store.list({}).empty());
  EXPECT_EQ(store.count({}), 0);
  EXPECT_TRUE(store.pending_actions().empty());
  EXPECT_TRUE(store.metrics(1, 0, 0, 0, 10).empty());
  EXPECT_TRUE(store.append({}).empty());
  EXPECT_GE(store.schema_version(), 1);
  EXPECT_EQ(store.secret().size(), 64U);
  EXPECT_EQ(store.secret(), store.secret());
}

TYPED_TEST(StoreContract, KeepsItsPlaceAndGetsANewNameOnlyWhenAsked) {
  auto& store = this->store();
  EXPECT_EQ(store.place(), "");
  const auto secret = store.secret();
  store.settle("here", false);
  EXPECT_EQ(store.place(), "here");
  EXPECT_EQ(store.secret(), secret);
  store.settle("there", true);
  EXPECT_EQ(store.place(), "there");
  EXPECT_NE(store.secret(), secret);
  EXPECT_EQ(store.secret().size(), 64U);
}

TYPED_TEST(StoreContract, ASubmittedJobIsFoundAgain) {
  auto& store = this->store();
  Saga saga(store, "request-1", R"({"name":"chess"})");
  saga.tell(submitted());
  EXPECT_EQ(saga.job().id, 1);
  EXPECT_EQ(store.load(1), saga.job());
  EXPECT_EQ(store.find_request("request-1"), 1);
  EXPECT_EQ(store.spec_json(1), R"({"name":"chess"})");
  EXPECT_EQ(store.next_job_id(), 2);
  EXPECT_THAT(store.load_open(), ElementsAre(saga.job()));
}

TYPED_TEST(StoreContract, LoadIsTheFoldOfTheEvents) {
  auto& store = this->store();
  Saga saga(store);
  saga.tell(submitted());
  saga.run(1);
  saga.tell(core::CheckpointSaved{1, 10});
  saga.tell(killed(1, 1, 9));
  saga.tell(exited(1, 0, 1, "peer gone"));
  saga.run(2);
  EXPECT_EQ(store.load(saga.job().id), saga.job());
  core::Job folded;
  folded.id = saga.job().id;
  for (const auto& stored : store.events(saga.job().id, 0, 1000)) {
    folded = core::apply(folded, stored.event).job;
    EXPECT_EQ(stored.version, folded.version);
    EXPECT_EQ(stored.state_after, folded.state);
  }
  EXPECT_EQ(folded, saga.job());
}

TYPED_TEST(StoreContract, TextThatIsNoUtf8IsMendedAndStillFoldsTheSame) {
  auto& store = this->store();
  Saga saga(store);
  saga.tell(submitted(1));
  saga.run(1);
  saga.tell(exited(1, 0, 3, "bad \xff\xc3( end\nline"));
  EXPECT_EQ(store.load(saga.job().id), saga.job());
  EXPECT_EQ(saga.job().attempts[0].reason, "rank 0 exited with 3: bad ?\?( end line");
}

TYPED_TEST(StoreContract, AVersionThatIsNotTheNextIsRefusedAndNothingIsKept) {
  auto& store = this->store();
  Saga saga(store);
  saga.tell(submitted());
  const core::Event event{at_ms(5), core::CancelRequested{"anna"}};
  store::Commit commit{event, store::shared(core::apply(saga.job(), event)), "", ""};
  store::Commit late = commit;
  const auto with_version = [&](std::int64_t version) {
    auto other = *late.applied;
    other.job.version = version;
    return store::shared(std::move(other));
  };
  commit.applied = with_version(5);
  EXPECT_EQ(kind_of_failure([&] { store.append({&commit, 1}); }), store::Error::Kind::kConflict);
  commit.applied = with_version(1);
  EXPECT_EQ(kind_of_failure([&] { store.append({&commit, 1}); }), store::Error::Kind::kConflict);
  EXPECT_EQ(store.last_event_id(), 1);
  store.append({&late, 1});
  EXPECT_EQ(kind_of_failure([&] { store.append({&late, 1}); }), store::Error::Kind::kConflict);
  EXPECT_EQ(store.last_event_id(), 2);
}

TYPED_TEST(StoreContract, AGroupIsKeptWholeOrNotAtAll) {
  auto& store = this->store();
  Story first(1), second(2);
  std::vector<store::Commit> group;
  first.tell(submitted());
  group.push_back({first.events.back(), store::shared(first.last), "a", "{}"});
  first.tell(core::CancelRequested{"anna"});
  group.push_back({first.events.back(), store::shared(first.last), "", ""});
  second.tell(submitted());
  group.push_back({second.events.back(), store::shared(second.last), "a", "{}"});  // the same request id again
  EXPECT_EQ(kind_of_failure([&] { store.append(group); }), store::Error::Kind::kConflict);
  EXPECT_EQ(store.last_event_id(), 0);
  EXPECT_EQ(store.next_job_id(), 1);
  EXPECT_TRUE(store.pending_actions().empty());
  group[2].request_id = "b";
  EXPECT_THAT(store.append(group), ElementsAre(1, 2, 3));
  EXPECT_EQ(store.load(1), first.job);
  EXPECT_EQ(store.load(2), second.job);
}

TYPED_TEST(StoreContract, ARequestIsAcceptedOnce) {
  auto& store = this->store();
  Saga first(store, "same");
  first.tell(submitted());
  Saga second(store, "same");
  EXPECT_EQ(kind_of_failure([&] { second.tell(submitted()); }), store::Error::Kind::kConflict);
  EXPECT_EQ(store.find_request("same"), 1);
  Saga nameless(store), another(store);
  nameless.tell(submitted());
  another.tell(submitted());
  EXPECT_EQ(store.count({}), 3) << "jobs without a request id do not collide";
  EXPECT_EQ(store.find_request(""), std::nullopt);
}

TYPED_TEST(StoreContract, EventsArePagedOldestFirst) {
  auto& store = this->store();
  Saga first(store), second(store);
  first.tell(submitted());
  second.tell(submitted());
  first.run(1);
  second.run(1);
  const auto all = store.events(0, 0, 100);
  ASSERT_EQ(all.size(), 8U);
  EXPECT_EQ(store.last_event_id(), all.back().id);
  EXPECT_EQ(all[0].text, "submitted by anna: 2 ranks");
  EXPECT_NE(all[0].payload.find("\"v\":1"), std::string::npos);
  const auto page = store.events(0, all[2].id, 3);
  ASSERT_EQ(page.size(), 3U);
  EXPECT_EQ(page[0].id, all[3].id);
  const auto own = store.events(second.job().id, all[1].id, 100);
  ASSERT_EQ(own.size(), 3U);
  for (const auto& event : own) EXPECT_EQ(event.job, second.job().id);
  EXPECT_EQ(own[0].version, 2);
  EXPECT_TRUE(store.events(0, all.back().id, 100).empty());
  EXPECT_TRUE(store.events(99, 0, 100).empty());
  EXPECT_TRUE(store.events(0, 0, 0).empty());
}

TYPED_TEST(StoreContract, ActionsStayUntilTheyAreDone) {
  auto& store = this->store();
  Saga saga(store);
  saga.at(1000).tell(submitted());
  auto pending = store.pending_actions();
  ASSERT_EQ(pending.size(), 1U);
  EXPECT_EQ(pending[0].job, saga.job().id);
  EXPECT_EQ(pending[0].action, core::Action(core::StartAttempt{1, at_ms(1000)}));
  saga.run(1);
  saga.tell(core::CancelRequested{"anna"});
  pending = store.pending_actions();
  ASSERT_EQ(pending.size(), 2U);
  EXPECT_EQ(pending[1].action, core::Action(core::StopAttempt{1, true, "cancelled by anna"}));
  Saga queued(store);
  queued.tell(submitted());
  queued.tell(core::AttemptLaunched{1, "Slurm job 12", "", {}, true});
  queued.tell(core::HoldRequested{"anna"});
  queued.tell(core::TimeLimitChanged{"anna", core::Millis{5000}});
  const auto more = store.pending_actions();
  ASSERT_EQ(more.size(), 5U);
  EXPECT_EQ(more[3].action, core::Action(core::HoldAttempt{1, true}));
  EXPECT_EQ(more[4].action, core::Action(core::LimitAttempt{1, core::Millis{5000}}));
  for (std::size_t i = 2; i < more.size(); ++i) store.complete_action(more[i].id);
  store.complete_action(pending[0].id);
  store.complete_action(pending[0].id);
  store.complete_action(999);
  const auto left = store.pending_actions();
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(left[0].id, pending[1].id);
}

TYPED_TEST(StoreContract, AnActionSaysHowFarItIs) {
  auto& store = this->store();
  using store::ActionState;
  Saga first(store), second(store);
  first.tell(submitted());
  second.tell(submitted());
  const auto states = [&] {
    std::vector<ActionState> found;
    for (const auto& action : store.pending_actions()) found.push_back(action.state);
    return found;
  };
  std::vector<std::int64_t> ids;
  for (const auto& action : store.pending_actions()) ids.push_back(action.id);
  EXPECT_THAT(states(), testing::ElementsAre(ActionState::kPending, ActionState::kPending));
  store.set_actions(ids, ActionState::kLaunching);
  EXPECT_THAT(states(), testing::ElementsAre(ActionState::kLaunching, ActionState::kLaunching));
  store.set_actions({&ids[1], 1}, ActionState::kPending);
  EXPECT_THAT(states(), testing::ElementsAre(ActionState::kLaunching, ActionState::kPending));
  store.complete_action(ids[0]);
  store.set_actions(ids, ActionState::kLaunching);
  EXPECT_THAT(states(), testing::ElementsAre(ActionState::kLaunching)) << "what is done stays done";
  EXPECT_EQ(store.pending_actions()[0].id, ids[1]);
  store.set_actions({}, ActionState::kDone);
  EXPECT_EQ(states().size(), 1U);
}

TYPED_TEST(StoreContract, AStartThatIsLaunchingSaysWhatItsAttemptWasGiven) {
  auto& store = this->store();
  using store::ActionState;
  Saga first(store), second(store);
  first.tell(submitted());
  second.tell(submitted());
  std::vector<std::int64_t> ids;
  for (const auto& action : store.pending_actions()) ids.push_back(action.id);
  const core::MachineShare share{{"GPU-a", "MIG-b"}, 4, {{0, "GPU-a"}, {{}, "GPU-b"}}};
  const std::vector<store::LaunchingAction> launching{{ids[0], share}, {ids[1]}};
  store.set_launching(launching);
  EXPECT_EQ(store.pending_actions()[0].state, ActionState::kLaunching);
  EXPECT_EQ(store.pending_actions()[0].share, share);
  EXPECT_EQ(store.pending_actions()[1].state, ActionState::kLaunching);
  EXPECT_EQ(store.pending_actions()[1].share, std::nullopt);
  store.set_actions({&ids[0], 1}, ActionState::kPending);
  EXPECT_EQ(store.pending_actions()[0].share, std::nullopt) << "no attempt is there, so it has nothing";
  store.complete_action(ids[1]);
  store.set_launching(launching);
  EXPECT_EQ(store.pending_actions().size(), 1U) << "what is done stays done";
  store.set_launching({});
}

TYPED_TEST(StoreContract, AnAttemptKeepsItsShareOfTheMachine) {
  auto& store = this->store();
  Saga saga(store);
  saga.tell(submitted());
  core::AttemptLaunched launched{1, "/data/jobs/1/attempt-1", "here", {17}};
  launched.share = core::MachineShare{{"GPU-a"}, 2};
  saga.tell(launched);
  EXPECT_EQ(store.load_open().front().attempts.front().share, launched.share);
}

TYPED_TEST(StoreContract, ListsGoFromTheNewestAndFilterByState) {
  auto& store = this->store();
  std::vector<Saga> sagas;
  for (int i = 0; i < 5; ++i) sagas.emplace_back(store).tell(submitted());
  sagas[1].tell(core::CancelRequested{"anna"});
  sagas[3].run(1);
  const auto ids = [](const std::vector<store::JobRow>& rows) {
    std::vector<core::JobId> result;
    for (const auto& row : rows) result.push_back(row.id);
    return result;
  };
  EXPECT_THAT(ids(store.list({})), ElementsAre(5, 4, 3, 2, 1));
  EXPECT_THAT(ids(store.list({.states = {}, .limit = 2, .before = 4})), ElementsAre(3, 2));
  EXPECT_THAT(ids(store.list({.states = {core::JobState::kPending}, .limit = 2, .before = 0})), ElementsAre(5, 3));
  EXPECT_THAT(ids(store.list({.states = {core::JobState::kRunning, core::JobState::kCancelled}, .limit = 9})),
              ElementsAre(4, 2));
  const core::JobState pending[] = {core::JobState::kPending};
  EXPECT_EQ(store.count(pending), 3);
  EXPECT_EQ(store.count({}), 5);
  EXPECT_EQ(store.load_open().size(), 4U);
}

TYPED_TEST(StoreContract, JobsOfASweepAreListedAndCountedApart) {
  auto& store = this->store();
  Saga alone(store);
  alone.tell(submitted());
  std::vector<Saga> elements;
  for (std::uint32_t i = 0; i < 4; ++i) {
    auto job = submitted();
    job.sweep = {i < 3 ? "s2" : "s5", i, 2};
    elements.emplace_back(store).tell(job);
  }
  elements[1].tell(core::CancelRequested{"anna"});
  const auto found = [&](const store::ListFilter& filter) {
    std::vector<std::pair<core::JobId, std::uint32_t>> result;
    for (const auto& row : store.list(filter)) {
      EXPECT_EQ(row.sweep, filter.sweep);
      result.emplace_back(row.id, row.sweep_index);
    }
    return result;
  };
  using P = std::pair<core::JobId, std::uint32_t>;
  EXPECT_THAT(found({.sweep = "s2"}), ElementsAre(P(4, 2), P(3, 1), P(2, 0)));
  EXPECT_THAT(found({.limit = 1, .before = 4, .sweep = "s2"}), ElementsAre(P(3, 1)));
  EXPECT_THAT(found({.states = {core::JobState::kPending}, .sweep = "s2"}), ElementsAre(P(4, 2), P(2, 0)));
  EXPECT_THAT(found({.sweep = "s"}), IsEmpty());
  EXPECT_EQ(store.list({}).size(), 5U) << "without a sweep: all";
  EXPECT_EQ(store.list({}).back().sweep, "");
  const core::JobState pending[] = {core::JobState::kPending};
  EXPECT_EQ(store.count({}, "s2"), 3);
  EXPECT_EQ(store.count(pending, "s2"), 2);
  EXPECT_EQ(store.count({}, "none"), 0);
  EXPECT_EQ(store.count(pending, ""), 4);
}

TYPED_TEST(StoreContract, JobsAreListedByTheirNumbers) {
  auto& store = this->store();
  std::vector<Saga> sagas;
  for (int i = 0; i < 5; ++i) sagas.emplace_back(store).tell(submitted());
  sagas[1].tell(core::CancelRequested{"anna"});
  const auto ids = [&](const store::ListFilter& filter) {
    std::vector<core::JobId> result;
    for (const auto& row : store.list(filter)) result.push_back(row.id);
    return result;
  };
  EXPECT_THAT(ids({.ids = {2, 5, 9, 2}}), ElementsAre(5, 2));
  EXPECT_THAT(ids({.states = {core::JobState::kPending}, .ids = {2, 5}}), ElementsAre(5));
  EXPECT_THAT(ids({.limit = 1, .before = 5, .ids = {1, 2, 5}}), ElementsAre(2));
  EXPECT_THAT(ids({.sweep = "s1", .ids = {1, 2}}), IsEmpty());
}

TYPED_TEST(StoreContract, ARemovedJobIsInNoListAndKeepsItsHistoryAndItsNumber) {
  auto& store = this->store();
  Saga first(store, "request-1", R"({"env":{"KEY":"secret"}})");
  auto of_sweep = submitted();
  of_sweep.sweep = {"s1", 0, 0};
  first.tell(of_sweep);
  Saga second(store);
  second.tell(submitted());
  first.tell(core::CancelRequested{"anna"});
  first.tell(core::JobRemoved{"anna"});
  second.tell(core::JobRemoved{"anna"});  // changes nothing: the job has not ended
  const auto listed = store.list({});
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(listed[0].id, 2);
  EXPECT_TRUE(store.list({.states = {core::JobState::kCancelled}}).empty());
  EXPECT_TRUE(store.list({.sweep = "s1"}).empty());
  EXPECT_TRUE(store.list({.ids = {1}}).empty());
  const core::JobState cancelled[] = {core::JobState::kCancelled};
  EXPECT_EQ(store.count({}), 1);
  EXPECT_EQ(store.count(cancelled), 0);
  EXPECT_EQ(store.count({}, "s1"), 0);
  EXPECT_EQ(store.totals(0, 100).jobs.count("cancelled"), 0U);
  EXPECT_EQ(store.spec_json(1), "{}") << "what was asked for may hold secrets";
  EXPECT_EQ(store.load(1), first.job());
  EXPECT_EQ(store.load(1)->removed_by, "anna");
  EXPECT_EQ(store.events(1, 0, 10).back().text, "removed by anna");
  EXPECT_EQ(store.next_job_id(), 3);
  EXPECT_EQ(store.find_request("request-1"), 1) << "a submission told twice makes no second job";
  const auto actions = store.pending_actions();
  ASSERT_FALSE(actions.empty());
  EXPECT_EQ(actions.back().job, 1);
  EXPECT_EQ(actions.back().action, core::Action(core::RemoveFiles{}));
  // Late news about a removed job are still stored.
  first.tell(core::RankExited{1, 0, {0, 0}, false, ""});
  EXPECT_EQ(store.list({}).size(), 1U);
}

TYPED_TEST(StoreContract, MetricsOfOneJobAreDeletedInParts) {
  auto& store = this->store();
  std::vector<store::MetricRow> rows;
  for (core::JobId job : {1, 2, 3}) {
    for (core::Step step = 1; step <= 5; ++step) rows.push_back({.job = job, .attempt = 1, .step = step});
  }
  store.add_metrics(rows);
  EXPECT_EQ(store.remove_metrics(2, 3), 3U);
  int parts = 0;
  while (store.remove_metrics(2, 3) == 3) ASSERT_LT(++parts, 10);
  EXPECT_TRUE(store.metrics(2, 0, 0, 0, 10).empty());
  EXPECT_EQ(store.remove_metrics(2, 3), 0U);
  EXPECT_EQ(store.metrics(1, 0, 0, 0, 10).size(), 5U);
  EXPECT_EQ(store.metrics(3, 0, 0, 0, 10).size(), 5U);
}

TYPED_TEST(StoreContract, AQueuedJobIsOpenAndItsRowTellsSinceWhen) {
  auto& store = this->store();
  Saga saga(store);
  saga.tell(submitted());
  saga.at(3000).tell(core::AttemptLaunched{1, "Slurm job 12", "", {}, true});
  auto row = store.list({})[0];
  EXPECT_EQ(row.state, core::JobState::kQueued);
  EXPECT_EQ(row.newest_attempt->state, core::AttemptState::kQueued);
  EXPECT_EQ(row.newest_attempt->queued_at, at_ms(3000));
  EXPECT_EQ(row.started_at, std::nullopt);
  EXPECT_THAT(store.load_open(), ElementsAre(saga.job()));
  EXPECT_EQ(store.list({.states = {core::JobState::kQueued}}).size(), 1U);
  saga.at(5000).tell(core::AttemptStarted{1, {"n1", "n2"}});
  row = store.list({})[0];
  EXPECT_EQ(row.newest_attempt->queued_at, at_ms(3000));
  EXPECT_EQ(row.started_at, at_ms(5000));
}

TYPED_TEST(StoreContract, LostNodesOfAllJobsAreFoundByTheirTime) {
  auto& store = this->store();
  Saga first(store), second(store);
  first.tell(submitted());
  second.tell(submitted());
  EXPECT_TRUE(store.node_losses(at_ms(0), 10).empty());
  first.run(1);
  second.run(1);
  first.at(1000).tell(core::NodeLost{1, "n1", core::Millis{3000}});
  second.at(2000).tell(core::NodeLost{1, "n2", core::Millis{3000}});
  first.at(3000).tell(
      core::NodeLost{1, "n3", core::Millis{3000}});  // the attempt is draining already; the event is stored
  const auto nodes = [&](std::int64_t since, std::uint32_t limit) {
    std::vector<std::string> result;
    for (const auto& event : store.node_losses(at_ms(since), limit)) {
      result.push_back(std::get<core::NodeLost>(event.event.body).node);
    }
    return result;
  };
  EXPECT_THAT(nodes(0, 10), ElementsAre("n1", "n2", "n3"));
  EXPECT_THAT(nodes(2000, 10), ElementsAre("n2", "n3"));
  EXPECT_THAT(nodes(0, 2), ElementsAre("n1", "n2"));
  EXPECT_THAT(nodes(3001, 10), IsEmpty());
  EXPECT_EQ(store.node_losses(at_ms(2000), 1)[0].job, second.job().id);
}

TYPED_TEST(StoreContract, ARowTellsTheNewestAttempt) {
  auto& store = this->store();
  Saga saga(store);
  saga.tell(submitted());
  EXPECT_EQ(store.list({})[0].newest_attempt, std::nullopt);
  saga.at(2000).run(1);
  saga.tell(killed(1, 1, 9));
  saga.tell(killed(1, 0, 15));
  saga.at(9000).run(2);
  const auto row = store.list({})[0];
  EXPECT_EQ(row.name, "chess");
  EXPECT_EQ(row.user, "anna");
  EXPECT_EQ(row.state, core::JobState::kRunning);
  EXPECT_EQ(row.version, saga.job().version);
  EXPECT_EQ(row.started_at, at_ms(2000));
  ASSERT_TRUE(row.newest_attempt);
  core::Attempt expected = saga.job().attempts[1];
  expected.ranks.clear();
  EXPECT_EQ(*row.newest_attempt, expected);
}

TYPED_TEST(StoreContract, MetricsOfAllRanksAreOneStep) {
  auto& store = this->store();
  store::MetricRow zero{.job = 1,
                        .attempt = 1,
                        .rank = 0,
                        .step = 1,
                        .step_ms = 10,
                        .memory_bytes = 5,
                        .memory_peak_bytes = 9,
                        .bytes_communicated = 70,
                        .at_ms = 42,
                        .values = {{"loss", 2.5}, {"grad_norm", 1.5}, {"validation/loss", 2.75}}};
  const std::vector<store::DeclaredSeries> declared{
      {1, {.name = "loss", .unit = "nats", .over_ranks = spec::OverRanks::kRank0}},
      {1, {.name = "grad_norm", .over_ranks = spec::OverRanks::kRank0}},
      {1, {.name = "validation/loss", .over_ranks = spec::OverRanks::kRank0}}};
  store::MetricRow one = zero;
  one.rank = 1;
  one.values = {{"loss", 99}};
  one.step_ms = 12;
  one.memory_bytes = 7;
  one.memory_peak_bytes = 8;
  one.at_ms = 50;
  store.add_metrics({&one, 1}, declared);
  EXPECT_TRUE(store.metrics(1, 0, 0, 0, 10).empty()) << "a step is shown once rank 0 has told it";
  store.add_metrics({&zero, 1});
  store.add_metrics({&one, 1});
  const auto steps = store.metrics(1, 0, 0, 0, 10);
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps[0].ranks, 2U);
  store::MetricRow expected = zero;
  expected.step_ms = 12;
  expected.memory_bytes = 7;
  expected.bytes_communicated = 140;
  EXPECT_EQ(steps[0].row, expected);
}

TYPED_TEST(StoreContract, AMetricToldTwiceKeepsItsFirstValue) {
  auto& store = this->store();
  store::MetricRow row{.job = 1, .attempt = 1, .rank = 0, .step = 3, .values = {{"loss", 2.5}}};
  store.add_metrics({&row, 1});
  row.values = {{"loss", 7}};
  store.add_metrics({&row, 1});
  const auto steps = store.metrics(1, 0, 0, 0, 10);
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(store::value_of(steps[0].row, "loss"), 2.5);
}

TYPED_TEST(StoreContract, MetricsArePagedByAttemptAndStep) {
  auto& store = this->store();
  std::vector<store::MetricRow> rows;
  for (core::AttemptNumber attempt : {2U, 1U}) {
    for (core::Step step = 3; step >= 1; --step) {
      for (core::RankNumber rank : {1U, 0U}) rows.push_back({.job = 4, .attempt = attempt, .rank = rank, .step = step});
    }
  }
  rows.push_back({.job = 5, .attempt = 1, .rank = 0, .step = 1});
  store.add_metrics(rows);
  const auto keys = [](const std::vector<store::StepRow>& steps) {
    std::vector<std::pair<int, int>> result;
    for (const auto& step : steps) {
      EXPECT_EQ(step.ranks, 2U);
      result.emplace_back(step.row.attempt, step.row.step);
    }
    return result;
  };
  using P = std::pair<int, int>;
  EXPECT_THAT(keys(store.metrics(4, 0, 0, 0, 100)), ElementsAre(P(1, 1), P(1, 2), P(1, 3), P(2, 1), P(2, 2), P(2, 3)));
  EXPECT_THAT(keys(store.metrics(4, 0, 1, 2, 2)), ElementsAre(P(1, 3), P(2, 1)));
  EXPECT_THAT(keys(store.metrics(4, 2, 0, 0, 100)), ElementsAre(P(2, 1), P(2, 2), P(2, 3)));
  EXPECT_THAT(keys(store.metrics(4, 1, 1, 1, 1)), ElementsAre(P(1, 2)));
  EXPECT_TRUE(store.metrics(4, 0, 2, 3, 100).empty());
}

TYPED_TEST(StoreContract, TheNewestMetricIsRankZerosOfTheNewestAttemptThatHasOne) {
  auto& store = this->store();
  EXPECT_EQ(store.newest_metric(4), std::nullopt);
  const store::MetricRow newest{.job = 4, .attempt = 2, .rank = 0, .step = 7, .at_ms = 3, .values = {{"loss", 1.5}}};
  const std::vector<store::MetricRow> rows{{.job = 4, .attempt = 1, .rank = 0, .step = 9},
                                           {.job = 4, .attempt = 2, .rank = 0, .step = 6},
                                           newest,
                                           {.job = 4, .attempt = 2, .rank = 1, .step = 8},
                                           {.job = 5, .attempt = 3, .rank = 1, .step = 1}};
  store.add_metrics(rows);
  EXPECT_EQ(store.newest_metric(4), newest);
  EXPECT_EQ(store.newest_metric(3), std::nullopt);
  EXPECT_EQ(store.newest_metric(5), std::nullopt);
}

TYPED_TEST(StoreContract, TheValuesOfRanksBecomeOneAsTheSeriesSays) {
  auto& store = this->store();
  using spec::OverRanks;
  const std::vector<store::DeclaredSeries> declared{{3, {.name = "accuracy", .over_ranks = OverRanks::kMean}},
                                                    {3, {.name = "correct", .over_ranks = OverRanks::kSum}},
                                                    {3, {.name = "wait_ms", .over_ranks = OverRanks::kMax}},
                                                    {3, {.name = "rate", .over_ranks = OverRanks::kRank0}}};
  std::vector<store::MetricRow> rows;
  for (core::RankNumber rank : {2U, 0U, 1U}) {
    const double n = rank;
    rows.push_back({.job = 3,
                    .attempt = 1,
                    .rank = rank,
                    .step = 8,
                    .values = {{"accuracy", 0.5 + n / 10}, {"correct", n + 1}, {"wait_ms", 10 - n}, {"rate", n}}});
  }
  store.add_metrics(rows, declared);
  const auto steps = store.metrics(3, 0, 0, 0, 10);
  ASSERT_EQ(steps.size(), 1U);
  const auto& row = steps[0].row;
  EXPECT_DOUBLE_EQ(store::value_of(row, "accuracy").value(), 0.6);
  EXPECT_EQ(store::value_of(row, "correct"), 6.0);
  EXPECT_EQ(store::value_of(row, "wait_ms"), 10.0);
  EXPECT_EQ(store::value_of(row, "rate"), 0.0);
  EXPECT_EQ(row.values.front().series, "accuracy") << "in the order of declaration";
  EXPECT_EQ(store.series(3)[1].value, 6.0) << "the newest value is one over the ranks, too";
  const store::MetricRow other{.job = 3, .attempt = 1, .rank = 1, .step = 9, .values = {{"rate", 5}}};
  store.add_metrics({&other, 1});
  EXPECT_EQ(store.series(3)[3].step, 8) << "of a series of rank 0's, others' values are none";
}

TYPED_TEST(StoreContract, SeriesKeepTheirNewestValueAndWhatIsDeclaredOfThem) {
  auto& store = this->store();
  EXPECT_TRUE(store.series(2).empty());
  std::vector<store::MetricRow> rows;
  for (core::Step step = 1; step <= 2000; ++step) {
    rows.push_back({.job = 2, .attempt = 1, .step = step, .values = {{"loss", 1.0 / static_cast<double>(step)}}});
    if (step == 5) rows.back().values.push_back({"validation/loss", 2.5});
  }
  rows.push_back({.job = 2, .attempt = 2, .step = 4, .values = {{"loss", 7}}});
  rows.push_back({.job = 9, .attempt = 1, .step = 1, .values = {{"reward", 7}}});
  store.add_metrics(rows);
  auto series = store.series(2);
  ASSERT_EQ(series.size(), 2U);
  EXPECT_EQ(series[0].series.name, "loss");
  EXPECT_EQ(series[0].series.better, spec::Better::kLower) << "the name says so";
  EXPECT_EQ(series[0].attempt, 2U) << "a later attempt goes on from an earlier step";
  EXPECT_EQ(series[0].step, 4);
  EXPECT_EQ(series[0].value, 7);
  EXPECT_EQ(series[1].series.name, "validation/loss");
  EXPECT_EQ(series[1].step, 5) << "however far back";
  EXPECT_EQ(series[1].value, 2.5);
  const store::DeclaredSeries declared{2, {.name = "loss", .unit = "bits", .better = spec::Better::kHigher}};
  const store::DeclaredSeries never{2, {.name = "never"}};
  store.add_metrics({}, {&declared, 1});
  store.add_metrics({}, {&never, 1});
  series = store.series(2);
  ASSERT_EQ(series.size(), 2U) << "a series without a value is none";
  EXPECT_EQ(series[0].series, declared.series);
  EXPECT_EQ(series[0].value, 7);
  const store::MetricRow late{.job = 2, .attempt = 1, .step = 1990, .values = {{"validation/loss", 2.25}}};
  store.add_metrics({&late, 1});
  EXPECT_EQ(store.series(2)[1].value, 2.25) << "a step that has a row already gets another series";
  EXPECT_EQ(store::value_of(store.metrics(2, 1, 1, 1989, 1)[0].row, "validation/loss"), 2.25);
}

TYPED_TEST(StoreContract, NoMoreSeriesAreKeptThanAJobMayHave) {
  auto& store = this->store();
  store::MetricRow row{.job = 2, .attempt = 1, .step = 1};
  for (std::size_t i = 0; i < spec::kMostSeries + 3; ++i) row.values.push_back({"s" + std::to_string(i), 1});
  store.add_metrics({&row, 1});
  EXPECT_EQ(store.series(2).size(), spec::kMostSeries);
  EXPECT_EQ(store.metrics(2, 0, 0, 0, 10)[0].row.values.size(), spec::kMostSeries);
}

TYPED_TEST(StoreContract, WhatARankDidNotMeasureIsUnknown) {
  auto& store = this->store();
  const store::MetricRow row{.job = 1, .attempt = 1, .step = 1, .values = {{"loss", 1}}};
  const store::MetricRow other{.job = 1, .attempt = 1, .rank = 1, .step = 1, .memory_bytes = 5};
  store.add_metrics({&row, 1});
  store.add_metrics({&other, 1});
  const auto step = store.metrics(1, 0, 0, 0, 10)[0].row;
  EXPECT_EQ(step.step_ms, std::nullopt);
  EXPECT_EQ(step.bytes_communicated, std::nullopt);
  EXPECT_EQ(step.memory_bytes, 5);
}

TYPED_TEST(StoreContract, TotalsCountJobsEndsAndEvents) {
  auto& store = this->store();
  EXPECT_TRUE(store.totals(0, 10).jobs.empty());
  Saga first(store), second(store);
  first.tell(submitted());
  second.tell(submitted());
  first.run(1);
  const auto middle = store.last_event_id();
  first.tell(killed(1, 1, 9));
  first.tell(exited(1, 0, 1, "peer gone"));
  const auto all = store.totals(0, 1000);
  EXPECT_THAT(all.jobs, ElementsAre(std::pair("pending", 1U), std::pair("waiting", 1U)));
  EXPECT_THAT(all.attempts_ended, ElementsAre(std::pair("failed", 1U)));
  EXPECT_EQ(all.events.at("job_submitted"), 2U);
  EXPECT_EQ(all.last_event, store.last_event_id());
  EXPECT_THAT(store.totals(middle, 1000).events, ElementsAre(std::pair("rank_exited", 2U)));
  const auto some = store.totals(0, 1);
  EXPECT_EQ(some.last_event, 1);
  EXPECT_THAT(some.events, ElementsAre(std::pair("job_submitted", 1U)));
  EXPECT_EQ(store.totals(all.last_event, 10).last_event, all.last_event);
}

TYPED_TEST(StoreContract, ALossThatIsNotANumberIsKept) {
  auto& store = this->store();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const store::MetricRow row{.job = 1,
                             .attempt = 1,
                             .rank = 0,
                             .step = 1,
                             .values = {{"loss", nan}, {"grad_norm", infinity}, {"validation/loss", nan}}};
  store.add_metrics({&row, 1});
  const auto steps = store.metrics(1, 0, 0, 0, 10);
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_TRUE(std::isnan(store::value_of(steps[0].row, "loss").value()));
  EXPECT_EQ(store::value_of(steps[0].row, "grad_norm"), infinity);
  EXPECT_TRUE(std::isnan(store::value_of(steps[0].row, "validation/loss").value()));
}

TYPED_TEST(StoreContract, WritersAndReadersMayComeFromManyThreads) {
  auto& store = this->store();
  constexpr int kThreads = 4;
  constexpr int kSteps = 50;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&store, t] {
      Story story(t + 1);
      story.tell(submitted(1));
      const auto keep = [&] {
        const store::Commit commit{story.events.back(), store::shared(story.last), "", "{}"};
        store.append({&commit, 1});
      };
      keep();
      story.tell(core::AttemptLaunched{1, "", "", {}});
      keep();
      for (int step = 1; step <= kSteps; ++step) {
        story.tell(core::CheckpointSaved{1, step});
        keep();
        const store::MetricRow row{.job = t + 1, .attempt = 1, .rank = 0, .step = step};
        store.add_metrics({&row, 1});
        const auto seen = store.load(t + 1);
        EXPECT_TRUE(seen && seen->version == story.job.version) << "what was written is seen at once";
        EXPECT_EQ(store.metrics(t + 1, 0, 0, 0, 1000).size(), static_cast<std::size_t>(step));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(store.last_event_id(), kThreads * (kSteps + 2));
}

}  // namespace
}  // namespace test
