#pragma once

#include <random>
#include <string>

#include "tests/controller/core/story.h"

namespace test {

/// Random events about present, past and future attempts, in any order. The same seed gives the same events.
class RandomEvents {
 public:
  explicit RandomEvents(std::uint32_t seed) : random_(seed) {}

  core::JobSubmitted submission() {
    core::RequeuePolicy policy;
    policy.max_failed = below(4);
    policy.max_rank_silent = below(3);
    policy.max_preempted = below(5);
    policy.max_controller_lost = below(3);
    policy.max_same_error = below(3);
    policy.backoff_max = core::Millis{below(10000)};
    policy.healthy_after = core::Millis{below(2) * 5000};
    core::JobSubmitted job{"random", "anna", below(4) == 0, 1 + below(3), core::Millis{below(2) * 1000}, policy};
    job.held = below(6) == 0;
    for (auto left = below(3) == 0 ? 1 + below(2) : 0; left > 0; --left) {
      job.after.push_back({other_job(), static_cast<core::DependsOn>(below(3)), false});
    }
    if (below(4) == 0) job.sweep = {"s1", below(9), below(3)};
    job.error_rules = below(2);
    job.tells_steps = job.is_command && below(2) == 0;
    return job;
  }

  /// Most events can really happen to this job now, so that some jobs get many attempts.
  core::EventBody next(const core::Job& job) {
    const core::AttemptNumber attempt = attempt_for(job);
    const core::RankNumber rank = below(job.world_size + (below(20) == 0 ? 1 : 0));
    switch (below(19)) {
      case 0:
      case 1:
      case 2:
        if (below(3) == 0) {
          return core::AttemptLaunched{
              next_number(job), "Slurm job 12", "", {}, true, core::Millis(-1), core::SchedulerJob{12, std::nullopt}};
        }
        return core::AttemptLaunched{below(4) != 0 ? next_number(job) : attempt, "h", "n", {}};
      case 3:
        return core::AttemptLaunchFailed{next_number(job), "no slots", below(8) != 0};
      case 4:
      case 5:
        return core::RankJoined{attempt, rank, "n", 1};
      case 6:
        return core::AttemptResumed{attempt, below(50)};
      case 7:
        if (below(4) == 0) return core::ProgramDescribed{attempt, below(3) * 100, below(2) == 0 ? "" : R"({"lr":0.1})"};
        return core::CheckpointSaved{attempt, below(50), core::Millis{0}, below(2) == 0 ? "" : "ckpt/step", 7};
      case 8:
      case 9:
      case 10:
        return core::RankExited{attempt,
                                rank,
                                exit_status(),
                                below(20) == 0,
                                below(3) == 0 ? "words \xff" : "",
                                below(3) == 0 ? "Error: it" : "",
                                below(2)};
      case 11:
        return core::RankSilent{attempt, rank, core::Millis{3000}, "stopped"};
      case 12:
        if (below(3) == 0)
          return core::AttemptSuspected{.attempt = attempt, .first_rank = rank, .lasts = core::Millis{12000}};
        if (below(2) == 0) return core::SuspicionOver{attempt, core::Suspicion::kHung, core::Millis{40000}};
        return core::RankHung{attempt, rank, "step", core::Millis{60000}};
      case 13:
        if (below(2) == 0) return core::TimeLimitReached{attempt};
        return core::AttemptGone{attempt, static_cast<core::Cause>(below(12)), below(2) == 0 ? "" : "gone"};
      case 14:
        if (below(10) == 0) return core::CancelRequested{"ben"};
        return core::RankJoined{attempt, rank, "", 0};
      case 15:
        if (below(3) == 0)
          return core::AttemptStopping{attempt, static_cast<core::Cause>(below(12)), "told", below(2) == 0};
        return core::AttemptStarted{attempt, {"n", "m"}};
      case 16:
        if (below(4) == 0) return core::NodeLost{attempt, below(2) == 0 ? "n" : "m", core::Millis{3000}};
        return core::DependencyEnded{other_job(), static_cast<core::JobState>(below(8))};
      case 17:
        if (below(3) == 0) return core::TimeLimitChanged{"ben", core::Millis{below(3) * 1000}};
        if (below(3) == 0)
          return core::TimeLimitAnswered{attempt, core::Millis{below(3) * 1000}, below(2) == 0 ? "" : "no"};
        if (below(4) == 0)
          return core::CheckpointFolderSeen{attempt, below(3), "step-8", below(3) == 0 ? "no answer" : "",
                                            static_cast<std::int32_t>(below(3)) - 1};
        if (below(2) == 0) return core::HoldRequested{"ben"};
        return core::ReleaseRequested{"ben"};
      default:
        if (below(30) == 0) return submission();
        if (below(20) == 0) return core::JobRemoved{"ben"};
        return core::RequeueRequested{"anna"};
    }
  }

  core::Millis pause() { return core::Millis{below(3000)}; }
  std::uint32_t below(std::uint32_t bound) { return bound == 0 ? 0 : static_cast<std::uint32_t>(random_() % bound); }

 private:
  core::JobId other_job() { return 100 + below(2); }
  static core::AttemptNumber next_number(const core::Job& job) {
    return static_cast<core::AttemptNumber>(job.attempts.size() + 1);
  }
  core::AttemptNumber attempt_for(const core::Job& job) {
    const auto newest = static_cast<core::AttemptNumber>(job.attempts.size());
    return below(8) == 0 ? below(newest + 3) : newest;
  }
  core::ExitStatus exit_status() {
    constexpr int kCodes[] = {0, 0, 0, 1, 93, 94, 97, 99};
    if (below(4) == 0) return {0, static_cast<int>(1 + below(15))};
    return {kCodes[below(8)], 0};
  }

  std::mt19937 random_;
};

}  // namespace test
