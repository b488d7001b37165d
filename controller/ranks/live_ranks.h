#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "agent/protocol/files.h"
#include "controller/core/job.h"
#include "controller/ranks/liveness.h"
#include "controller/store/store.h"
#include "muster/v1/rank_service.pb.h"

namespace ranks {

/// Which steps a trace is to hold. Its number tells it from others.
struct TraceWish {
  std::uint64_t number = 0;
  core::Step first = 0;  // 0: the next step that all ranks can record
  std::uint32_t steps = 1;
};
muster::v1::TraceWish wire(const TraceWish& wish);

/// The facts that one rank has told of a trace.
struct TracedRank {
  bool has_spoken = false;  // the ranks have agreed on it
  bool is_over = false;
  std::vector<core::Step> steps_written;
  std::string problem;
};

/// A trace that a person has asked for.
struct StepTrace {
  TraceWish wish;
  std::string user;      // who asked; empty: a controller before this one was asked
  core::Step first = 0;  // what the ranks have agreed on; 0: nothing yet
  std::vector<TracedRank> ranks;
  bool is_over() const { return std::ranges::all_of(ranks, &TracedRank::is_over); }
};

/// The traces of one attempt: which are wished, and how far the ranks are.
///
/// A wish goes to each rank with the answers to its heartbeats, until the rank has said that the ranks agreed. They
/// agree on a step among themselves, so one rank that has heard is enough. Nothing here is stored. A controller that
/// was restarted learns from the ranks' first heartbeats which trace they are at, and whoever waits asks again with the
/// same number. Not thread-safe.
class StepTraces {
 public:
  /// The newest are kept, so that an earlier request can be asked for again.
  static constexpr std::size_t kKept = 16;

  explicit StepTraces(std::uint32_t ranks) : ranks_(ranks) {}

  /// Notes the rank's report on its newest trace; null: its program cannot record. True: the report is news.
  bool said(core::RankNumber rank, const muster::v1::TraceReport* report);
  /// The wish that the rank is to be told; nullopt: none.
  std::optional<TraceWish> wish_for(core::RankNumber rank) const;

  /// Does nothing if the number is known.
  void ask(const TraceWish& wish, const std::string& user) {
    if (find(wish.number) == nullptr) add(wish, user);
  }
  const StepTrace* find(std::uint64_t number) const;
  /// One that is not over; null: there is none.
  const StepTrace* under_way() const {
    const auto place = std::ranges::find_if(traces_, [](const StepTrace& trace) { return !trace.is_over(); });
    return place == traces_.end() ? nullptr : &*place;
  }
  /// A rank that has spoken and cannot record.
  std::optional<core::RankNumber> unable() const;

 private:
  enum class Able : std::uint8_t { kUnknown, kYes, kNo };
  StepTrace& add(const TraceWish& wish, const std::string& user);
  bool give_up(core::RankNumber rank);

  std::uint32_t ranks_;
  std::vector<Able> able_;  // empty until a rank has spoken
  std::deque<StepTrace> traces_;
};

/// How fast one rank goes, as it has reported.
struct RankPace {
  core::Step step = 0;                     // the newest it has done
  double quickest_ms = 0, slowest_ms = 0;  // of its newest steps; 0: not known
  core::Millis told_ago{0};                // when it said so
};

/// The step after which all ranks leave, so that none of them waits for another that has left already. It is so far
/// ahead that the stop file lies beside every rank before any rank gets there. nullopt: no rank has told of steps, or
/// one could not get there within half of `grace`; then each rank leaves at once. `ranks`: those that have reported
/// steps. `interval`: between two heartbeats.
std::optional<core::Step> leave_step(std::span<const RankPace> ranks, core::Millis interval, core::Millis grace);

/// Which ranks of one attempt are slow. A rank is slow once its step has taken more than kSlow times the median over
/// all ranks in each of the last kSteps steps. One quick step ends that: a rank that is slow now and then is a busy
/// machine.
///
/// Ranks report at different moments, so a step is judged when all of them have reported it. With fewer than
/// kFewestRanks nobody is slow: of two, the median lies between both, and neither is the usual one. Not thread-safe.
class Stragglers {
 public:
  static constexpr double kSlow = 1.2;
  static constexpr std::uint32_t kSteps = 50;
  static constexpr std::uint32_t kFewestRanks = 3;
  /// Steps that wait for ranks, and their times over all ranks: beyond them the oldest step is not judged. One
  /// heartbeat brings at most 512 steps.
  static constexpr std::size_t kMostWaiting = 1024;
  static constexpr std::size_t kMostTimes = 1 << 18;

  explicit Stragglers(std::uint32_t ranks);
  /// A step's time as a rank reported it; told again, or of a step that was judged, it changes nothing.
  void add(core::RankNumber rank, core::Step step, double step_ms);
  /// How many times the median the rank's steps took, over all steps since it became slow; nullopt: it is not slow.
  std::optional<double> slowness(core::RankNumber rank) const {
    if (rank >= ranks_.size() || ranks_[rank].slow_steps < kSteps) return std::nullopt;
    return ranks_[rank].ratios / ranks_[rank].slow_steps;
  }

 private:
  struct Rank {
    std::uint32_t slow_steps = 0;  // in a row
    double ratios = 0;             // their sum
  };
  struct Waiting {
    std::vector<float> step_ms;  // by rank; 0: not reported
    std::uint32_t reported = 0;
  };
  void judge(const std::vector<float>& step_ms);

  std::vector<Rank> ranks_;
  std::map<core::Step, Waiting> waiting_;
  core::Step judged_ = -1;
};

/// The facts that a rank's newest heartbeat told, for people.
struct RankView {
  std::optional<core::Millis> heard_at;  // monotonic
  std::string section = "init";
  core::Step step = 0;
  /// All its rows of lower steps are durable. A rank tells of its newest step long before it could send all rows.
  core::Step durable_step = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t memory_peak_bytes = 0;
  double step_ms = 0;
  bool has_left = false;  // it, or its agent, tells nothing more
  bool blind = false;     // what its report file holds was not told whole, as far as the newest heartbeat knows
  std::string leaving_reason;
  std::optional<double> slowness;          // see Stragglers
  double quickest_ms = 0, slowest_ms = 0;  // of its newest steps
  std::int64_t pid = 0;                    // as it said itself
  std::string node;
  /// It has told of a step, a section, a checkpoint or its settings: its agent alone may tell of bad lines.
  bool reports = false;
  /// The words of the rank's program about itself; null: none.
  std::shared_ptr<const muster::v1::ProgramWords> program;
  std::optional<agent::protocol::RankUse> use;
  core::Millis used_at{0};  // monotonic: when this sample came first
};

/// The work that must be done after a round of watching.
struct Watched {
  struct Fact {
    core::JobId job = 0;
    core::EventBody body;
  };
  std::vector<Fact> facts;
  std::vector<core::AttemptKey> stop_again;
  std::vector<core::AttemptKey> suspected;
  bool somebody_is_missed = false;  // soon something may follow from it
};

/// The live state of the ranks of attempts that have not ended, and of the last kEndedKept that have: heartbeats,
/// meeting points, what was reported already. In memory alone; a restarted controller learns it from heartbeats.
/// Thread-safe.
class LiveRanks {
 public:
  static constexpr std::size_t kEndedKept = 256;

  /// Starts watching, unless it is watched already. `fresh_until`: silence is counted from then on; one later than now
  /// is granted to those watched already, too.
  void track(const core::AttemptKey& key, const LivenessRules& rules, std::uint32_t world_size, core::Millis now,
             core::Millis fresh_until);
  /// Takes in what the job's history says; ends the watch of attempts that have ended.
  void follow(const core::Job& job, core::Millis now);
  /// How long it has been running already.
  void set_started(const core::AttemptKey& key, core::Millis at) {
    std::lock_guard lock(mutex_);
    if (auto* live = find(key)) live->watch.set_started(at);
  }

  /// True if its step or section moved.
  bool heartbeat(const core::AttemptKey& key, core::RankNumber rank, const muster::v1::HeartbeatRequest& request,
                 core::Millis now);
  void registered(const core::AttemptKey& key, core::RankNumber rank, core::Millis now, const std::string& node = {},
                  std::int64_t pid = 0);
  /// Notes the use of the rank's processes. True: the sample is new. An agent that speaks for a rank is not the rank,
  /// so this does not count as heard.
  bool used(const core::AttemptKey& key, core::RankNumber rank, const agent::protocol::RankUse& use, core::Millis now);
  /// Steps of one rank, in order: who is slow shows from all ranks' together.
  void steps(const core::AttemptKey& key, const std::vector<store::MetricRow>& rows);
  /// The rows of one rank are durable below this step; 0: nobody knows up to where.
  void set_durable_step(const core::AttemptKey& key, core::RankNumber rank, core::Step step);
  std::optional<RankView> view(const core::AttemptKey& key, core::RankNumber rank) const;
  /// Something came out of the attempt: its log, its report or its checkpoint folder has changed.
  void came_out(const core::AttemptKey& key, core::Millis now) {
    std::lock_guard lock(mutex_);
    if (auto* live = find(key)) live->watch.came_out(now);
  }
  /// nullopt: no rank of it can be found hung now.
  std::optional<LeastProgress> least_progress(const core::AttemptKey& key, core::Millis now) const;
  /// After which step all ranks leave (see leave_step). The first answer stays: every rank must get the same.
  std::optional<core::Step> leave_step(const core::AttemptKey& key, core::Millis interval, core::Millis now);

  /// Newest checkpoint already written to the history; nullopt: none yet.
  std::optional<core::Step> checkpoint_told(const core::AttemptKey& key) const;
  void set_checkpoint_told(const core::AttemptKey& key, core::Step step) {
    std::lock_guard lock(mutex_);
    if (auto* live = find(key)) live->checkpoint_told = std::max(live->checkpoint_told.value_or(step), step);
  }

  /// Notes a rank's report on its newest trace; null: its program cannot record steps. True: the report is news.
  bool said_of_trace(const core::AttemptKey& key, core::RankNumber rank, const muster::v1::TraceReport* report);
  /// The trace that the rank is to record; nullopt: none.
  std::optional<TraceWish> trace_wish(const core::AttemptKey& key, core::RankNumber rank) const;
  /// An earlier request, and the attempt that it was made to; nullopt: none of this number.
  std::optional<std::pair<core::AttemptNumber, StepTrace>> find_trace(core::JobId job, std::uint64_t number) const;
  /// The request is taken unless one of another number is under way, a rank cannot record, or the attempt has ended.
  struct TraceAnswer {
    std::optional<StepTrace> taken;
    std::optional<StepTrace> under_way;
    std::optional<core::RankNumber> unable;  // a rank that cannot record
  };
  TraceAnswer ask_trace(const core::AttemptKey& key, const TraceWish& wish, const std::string& user);

  /// The agents of its ranks are to give their stacks, by this number. False: the attempt has ended.
  bool ask_stacks(const core::AttemptKey& key, std::uint64_t number);
  /// The newest such number; 0: nobody has asked.
  std::uint64_t stacks_asked(const core::AttemptKey& key) const;

  void set_endpoint(const core::AttemptKey& key, const std::string& endpoint) {
    std::lock_guard lock(mutex_);
    if (auto* live = find(key)) live->endpoint = endpoint;
  }
  /// Empty if it is not known or the attempt has ended.
  std::string endpoint(const core::AttemptKey& key) const;

  /// The facts that a round of watching goes by.
  struct Round {
    core::Millis now;
    bool deaf = false;  // everyone gets fresh time, see Hearing
    /// Heartbeats sent before this moment have been read, see Reading. Silence is judged by this moment.
    core::Millis read_until;
    /// How much longer than its `silent_after` a rank may be unheard, see Pace.
    std::function<core::Millis(core::Millis silent_after)> grace;
  };
  /// Returns AttemptWatch::lost_node() of the attempt.
  std::optional<core::EventBody> lost_node(const core::AttemptKey& key, const Round& round);
  /// Calls AttemptWatch::not_told() for an end that watch() has found.
  void not_told(const core::AttemptKey& key, const core::EventBody& end) {
    std::lock_guard lock(mutex_);
    if (auto* live = find(key)) live->watch.not_told(end);
  }
  /// True while an attempt has not ended: rounds have something to judge.
  bool is_watching() const {
    std::lock_guard lock(mutex_);
    return std::ranges::any_of(attempts_, [](const auto& entry) { return !entry.second.ended; });
  }
  /// One round over every attempt. Asks `vouch` without holding a lock.
  Watched watch(const Round& round,
                const std::function<executors::Vouch(const core::AttemptKey&, core::RankNumber)>& vouch);

 private:
  struct Live {
    AttemptWatch watch;
    std::vector<RankView> ranks;
    Stragglers stragglers;
    StepTraces traces;
    std::uint64_t stacks = 0;
    std::string endpoint = {};
    std::optional<core::Step> checkpoint_told = {};
    std::optional<std::optional<core::Step>> leave_step = {};
    bool ended = false;
  };
  /// A moment of the past: until then a rank would have been heard, however late heartbeats are read and sent.
  static core::Millis heard_until(const AttemptWatch& watch, const Round& round) {
    return std::min(round.now, round.read_until) - round.grace(watch.rules().silent_after);
  }
  Live* find(const core::AttemptKey& key) {
    const auto found = attempts_.find(key);
    return found == attempts_.end() ? nullptr : &found->second;
  }
  const Live* find(const core::AttemptKey& key) const {
    const auto found = attempts_.find(key);
    return found == attempts_.end() ? nullptr : &found->second;
  }
  void end(const core::AttemptKey& key, Live& live);

  mutable std::mutex mutex_;
  std::map<core::AttemptKey, Live> attempts_;
  std::deque<core::AttemptKey> ended_;
};

}  // namespace ranks
