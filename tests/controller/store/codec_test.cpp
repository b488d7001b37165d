// Goal: a stored event or action can be read for ever.
// Method: encode and decode every type; golden files hold the stored shapes; older and newer shapes are written by
// hand.
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "controller/store/codec.h"
#include "controller/store/store.h"
#include "tests/controller/core/golden.h"
#include "tests/controller/core/story.h"

namespace test {
namespace {

using namespace std::chrono_literals;

/// One event of each type, with no field at its default.
std::vector<core::EventBody> every_event() {
  const core::RequeuePolicy policy{1, 2, 4, 6, 7, 8, 9, 11, 15, 12ms, 13ms, 14ms};
  return {
      core::JobSubmitted{"chess \"4\"\n",
                         "anna",
                         true,
                         3,
                         90s,
                         policy,
                         true,
                         {{12, core::DependsOn::kFailed, false}, {13, core::DependsOn::kEnded, false}},
                         {"s7", 4, 2},
                         1,
                         true},
      core::AttemptLaunched{2,
                            "handle",
                            "node1",
                            {101, 102},
                            true,
                            90s,
                            core::SchedulerJob{12, 5},
                            core::MachineShare{{"GPU-1", "1"}, 3, {{0, "GPU-1"}, {1}}}},
      core::AttemptLaunchFailed{2, "no such program", false},
      core::RankJoined{2, 1, "node1", 102},
      core::AttemptResumed{2, 30},
      core::CheckpointSaved{2, 40, core::Millis(1'795'000'000'123), "ckpt/40", 4096},
      core::ProgramDescribed{2, 9000, R"({"lr":0.1})"},
      core::RankExited{2,
                       1,
                       {3, 9},
                       true,
                       "last w\xc3\xb6rds",
                       "RuntimeError: no",
                       38,
                       "Traceback\n  line 3",
                       "evaluates",
                       2,
                       "line 4: \"x\" is no JSON object",
                       "report.log: none"},
      core::RankSilent{2, 1, 3100ms, "stopped"},
      core::RankHung{2, 1, "data", 65s, 12s, 200, true, 11s, core::LimitSource::kLearned, "evaluate"},
      core::AttemptSuspected{2, core::Suspicion::kUnheard, 1, 4, "node2", "data", 15s, 12s, 600s, 200, true, 60s,
                             core::LimitSource::kNotLearnedYet, "save"},
      core::SuspicionOver{2, core::Suspicion::kUnheard, 40s},
      core::TimeLimitReached{2},
      core::AttemptGone{2, core::Cause::kNodeFailed, "node1 is down"},
      core::CancelRequested{"ben"},
      core::RequeueRequested{"ben"},
      core::AttemptStarted{2, {"node1", "node2"}, true},
      core::AttemptStopping{2, core::Cause::kTimedOut, "time limit", false},
      core::NodeLost{2, "node2", 3200ms, "its health check failed", true},
      core::HoldRequested{"ben"},
      core::ReleaseRequested{"ben"},
      core::TimeLimitChanged{"ben", 2h},
      core::DependencyEnded{12, core::JobState::kCancelled},
      core::TimeLimitAnswered{2, 2h, "Access/permission denied"},
      core::CheckpointFolderSeen{2, 3, "step-40", "no answer", 1},
      core::JobRemoved{"ben"},
  };
}

store::Error::Kind failure(std::string_view type, std::string_view payload) {
  try {
    store::decode_event(type, payload);
  } catch (const store::Error& error) {
    return error.kind();
  }
  ADD_FAILURE() << type << " " << payload << " was read";
  return store::Error::Kind::kOther;
}

TEST(EventCodecGolden, StoredShapesNeverChange) {
  std::ostringstream lines;
  std::set<std::size_t> kinds;
  for (const auto& event : every_event()) {
    kinds.insert(event.index());
    lines << R"({"type":")" << type_name(event) << R"(","payload":)" << store::encode_event(event) << "}\n";
  }
  EXPECT_EQ(kinds.size(), std::variant_size_v<core::EventBody>);
  expect_golden("events.jsonl", lines.str());
}

/// Events as they were stored before jobs could be queued, held, depend on other jobs or belong to a sweep.
TEST(EventCodec, WhatAnEarlierMusterStoredStillReads) {
  const core::RequeuePolicy policy{1, 2, 4, 6, 7, 8, 9, 11, 1, 12ms, 13ms, 14ms};
  const std::pair<const char*, core::EventBody> stored[] = {
      {R"({"v":1,"name":"chess \"4\"\n","user":"anna","is_command":true,"world_size":3,"time_limit_ms":90000,)"
       R"("policy":{"max_failed":1,"max_rank_silent":2,"max_rank_hung":4,"max_preempted":6,"max_timed_out":7,)"
       R"("max_node_failed":8,"max_out_of_memory":9,"max_controller_lost":11,"backoff_initial_ms":12,)"
       R"("backoff_max_ms":13,"healthy_after_ms":14}})",
       core::JobSubmitted{"chess \"4\"\n", "anna", true, 3, 90s, policy}},
      {R"({"v":1,"attempt":2,"handle":"handle","node":"node1","pids":[101,102]})",
       core::AttemptLaunched{2, "handle", "node1", {101, 102}, false}},
      {R"({"v":1,"attempt":2,"cause":"node_failed","reason":"node1 is down"})",
       core::AttemptGone{2, core::Cause::kNodeFailed, "node1 is down"}},
      {R"({"v":1,"attempt":2,"rank":1,"exit":{"code":3,"signal":0},"out_of_memory":false,"last_words":"no data"})",
       core::RankExited{2, 1, {3, 0}, false, "no data", ""}},
  };
  for (const auto& [payload, event] : stored) {
    EXPECT_EQ(store::decode_event(type_name(event), payload), event) << payload;
  }
}

TEST(EventCodec, WordsThatANewerMusterKnowsAreTakenForTheSafeOnes) {
  EXPECT_EQ(store::decode_event("dependency_ended", R"({"v":1,"job":3,"state":"archived"})"),
            core::EventBody(core::DependencyEnded{3, core::JobState::kPending}))
      << "no end that is known: nothing follows from it";
  const auto submitted = std::get<core::JobSubmitted>(
      store::decode_event("job_submitted", R"({"v":1,"after":[{"job":3,"on":"archived"}]})"));
  ASSERT_EQ(submitted.after.size(), 1U);
  EXPECT_EQ(submitted.after[0], (core::Dependency{3, core::DependsOn::kSucceeded, false}));
  EXPECT_EQ(failure("attempt_started", R"({"v":1,"attempt":1,"nodes":"n1"})"), store::Error::Kind::kCorrupt);
  EXPECT_EQ(failure("job_submitted", R"({"v":1,"after":[7]})"), store::Error::Kind::kCorrupt);
}

TEST(EventCodec, EveryEventReadsBackAsItWas) {
  for (const auto& event : every_event()) {
    EXPECT_EQ(store::decode_event(type_name(event), store::encode_event(event)), event) << type_name(event);
  }
}

TEST(EventCodec, EveryCauseReadsBack) {
  for (int i = 0; i <= static_cast<int>(core::Cause::kRequeued); ++i) {
    const core::EventBody event = core::AttemptGone{1, static_cast<core::Cause>(i), ""};
    EXPECT_EQ(store::decode_event("attempt_gone", store::encode_event(event)), event);
  }
}

TEST(EventCodec, UnknownFieldsAreIgnoredAndMissingOnesKeepTheirDefault) {
  EXPECT_EQ(store::decode_event("rank_joined", R"({"v":1,"attempt":3,"colour":"red","deep":{"er":[1]}})"),
            core::EventBody(core::RankJoined{3, 0, "", 0}));
  EXPECT_EQ(store::decode_event("job_submitted", R"({"v":1,"policy":{"max_failed":9}})"),
            core::EventBody(core::JobSubmitted{"", "", false, 1, 0ms, {.max_failed = 9}}));
}

TEST(EventCodec, NewerAndBrokenShapesAreToldApart) {
  EXPECT_EQ(failure("rank_teleported", R"({"v":1})"), store::Error::Kind::kNewer);
  EXPECT_EQ(failure("rank_joined", R"({"v":2,"attempt":1})"), store::Error::Kind::kNewer);
  EXPECT_EQ(failure("rank_joined", R"({"attempt":1})"), store::Error::Kind::kCorrupt);
  EXPECT_EQ(failure("rank_joined", R"({"v":1,"attempt":"one"})"), store::Error::Kind::kCorrupt);
  EXPECT_EQ(failure("rank_joined", R"({"v":1,"att)"), store::Error::Kind::kCorrupt);
  EXPECT_EQ(failure("rank_joined", "[]"), store::Error::Kind::kCorrupt);
  EXPECT_EQ(failure("rank_exited", R"({"v":1,"exit":7})"), store::Error::Kind::kCorrupt);
}

TEST(EventCodec, BytesThatAreNoTextAreMended) {
  const auto payload = store::encode_event(core::CancelRequested{"\xff\xfe"});
  EXPECT_EQ(store::decode_event("cancel_requested", payload), core::EventBody(core::CancelRequested{"??"}));
}

TEST(ActionCodec, EveryActionReadsBackAsItWas) {
  for (const core::Action& action :
       {core::Action(core::StartAttempt{3, at_ms(12345)}), core::Action(core::StopAttempt{2, true, "cancelled"}),
        core::Action(core::HoldAttempt{2, true}), core::Action(core::HoldAttempt{2, false}),
        core::Action(core::LimitAttempt{2, 90s})}) {
    EXPECT_EQ(store::decode_action(store::action_kind(action), store::encode_action(action)), action);
  }
  EXPECT_EQ(store::encode_action(core::StartAttempt{3, at_ms(12345)}), R"({"attempt":3,"not_before_ms":12345})");
  EXPECT_EQ(store::encode_action(core::StopAttempt{2, true, "why"}), R"({"attempt":2,"save":true,"reason":"why"})");
  EXPECT_EQ(store::encode_action(core::HoldAttempt{2, true}), R"({"attempt":2,"hold":true})");
  EXPECT_EQ(store::encode_action(core::LimitAttempt{2, 90s}), R"({"attempt":2,"time_limit_ms":90000})");
  EXPECT_THROW(store::decode_action("dance", "{}"), store::Error);
  EXPECT_THROW(store::decode_action("stop_attempt", "{"), store::Error);
}

}  // namespace
}  // namespace test
