#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "controller/core/event.h"
#include "controller/core/job.h"
#include "controller/executors/executor.h"
#include "muster/v1/job.pb.h"

namespace ranks {

/// After what time without progress a hang of a rank is suspected.
struct HangLimit {
  core::Millis time{0};
  std::uint64_t learned_from = 0;  // steps, or times in a section without steps; 0: nobody has learned it
  bool operator==(const HangLimit&) const = default;
};

/// The limits for hangs that the times between progress teach, by section: a limit is five times the 99th percentile of
/// the times of all ranks, and never less than twice the longest time. It is ten seconds at least for steps, and a
/// minute elsewhere: evaluations and checkpoints wait for disks.
///
/// A section that nobody has seen often enough has a generous limit: its first evaluation or its first checkpoint may
/// take long. Old times count less and less, so the limit follows a training whose steps change. Pure: every time is
/// passed in. Not thread-safe.
class HangLimits {
 public:
  static constexpr core::Millis kLeast{10'000}, kLeastElsewhere{60'000}, kGenerous{1'800'000};
  /// Steps and times that one rank needs before its section's times say anything.
  static constexpr std::uint32_t kEnoughSteps = 20, kEnoughTimes = 5;
  /// Times kept of each rank. When there are more, all that is known counts half.
  static constexpr double kTimesKept = 2048;
  /// Further sections of a program are not learned.
  static constexpr std::size_t kMostSections = 32;
  /// After an end by a hang of so long, which may have been none, the next attempt waits this many times as long.
  static constexpr int kAfterHang = 2;

  explicit HangLimits(std::uint32_t ranks) : ranks_(ranks) {}

  /// Between two signs of progress of this rank, the first of them in `section`, passed `took` and so many steps.
  void learn(const std::string& section, core::RankNumber rank, core::Millis took, core::Step steps);
  /// An attempt was ended after so long without progress in this section.
  void note_hang(const std::string& section, core::Millis waited) {
    if (auto* known = find(section)) known->after_hang = std::max(known->after_hang, kAfterHang * waited);
  }
  /// It was not ended after all. `before`: what after_hang() was.
  void forget_hang(const std::string& section, core::Millis before) {
    if (auto* known = find(section)) known->after_hang = before;
  }
  HangLimit of(const std::string& section) const;
  /// The least time without progress that ends an attempt in this section, after an earlier end there; 0: none was.
  core::Millis after_hang(const std::string& section) const {
    const auto found = sections_.find(section);
    return found == sections_.end() ? core::Millis{0} : found->second.after_hang;
  }

 private:
  struct Seen {
    std::uint32_t times = 0, steps = 0;
  };
  struct Section {
    std::map<int, double> times;  // how many, by the logarithm of the time
    double total = 0;
    std::vector<Seen> ranks;  // by rank
    Seen most;                // of one rank
    core::Millis after_hang{0};
  };
  Section* find(const std::string& section);

  std::uint32_t ranks_;
  std::map<std::string, Section, std::less<>> sections_;
};

/// "12 s, learned from 200 steps"; "30 min until 20 steps are timed, then learned from them".
std::string hang_limit_text(const HangLimit& limit, std::string_view section, bool is_set);

/// Per job, from spec.liveness. Zero turns a limit off, but that of hangs.
struct LivenessRules {
  core::Millis silent_after{2500};
  core::Millis silent_after_vouched{15000};
  core::Millis hung_after{0};  // the user's word on when a hang ends the attempt; 0: HangLimits
  core::Millis lost_after{600000};
  core::Millis join_within{120000};
  core::Millis stop_grace{30000};
  core::Millis time_limit{0};
  /// The scheduler kills at the limit, so ranks are asked to save stop_grace before it (half the limit, if that is
  /// less). Otherwise they are asked at the limit.
  bool limit_is_hard = false;
  bool heartbeats = true;  // false: any program; only its processes tell
};
LivenessRules liveness_rules(const muster::v1::JobSpec& spec);

/// The known facts about one rank, in monotonic time.
struct RankWatch {
  bool joined = false;
  bool is_known = false;  // it has told its step and section to this controller
  bool exited = false;
  bool reported = false;   // as silent or hung: said once
  bool has_steps = false;  // it has told of a step, as any program may
  bool is_done = false;    // its last step is over, or it has told that it leaves
  core::Millis heard_at{0};
  core::Millis progress_at{0};
  /// The rank was heard without a gap since progress_at: the time until its next progress teaches.
  bool may_teach = false;
  std::uint64_t moves = 0;                            // how often its step was seen to grow in this attempt
  core::Millis spoke_at{-1};                          // it was last heard itself; fresh time changes nothing here
  core::Millis told_at{0};                            // the same, and its step was known
  core::Millis moved_at{0};                           // it last told of progress; fresh time changes nothing here
  std::optional<core::Millis> vouched_at;             // its node last knew anything of it
  std::optional<core::Millis> asked_at;               // its node was last asked
  executors::Vouch word = executors::Vouch::kAsking;  // and said so
  std::optional<core::Millis> stopped_since;          // its node says so, each time it is asked
  std::optional<core::Millis> gone_since;             // its node says the process is gone, but its end has not arrived
  std::string section = "init";
  core::Step step = 0;
  std::string node;
};

/// The progress of a rank, as the rank tells it.
struct Progress {
  core::Step step = 0;
  std::string section;
  bool blind = false;  // whoever speaks for it cannot know whether it has gone on
  bool done = false;   // it has made its last step, or says that it leaves
};

/// The rank that has gone without progress for the longest part of its limit.
struct LeastProgress {
  core::RankNumber rank = 0;
  std::string section;
  HangLimit limit;             // after which a hang is suspected, or that is set
  bool is_set = false;         // the limit is liveness.hung_after
  std::string limit_section;   // whose limit it is: the rank's own, or another one that ranks are in
  core::Millis ends_after{0};  // the attempt ends by it
  core::Millis since{0};
};

/// One attempt under watch. Pure: no thread, no clock, no I/O; every time is passed in, so that each rule is a table in
/// a test.
///
/// The attempt ends only on evidence that it does not work, from somebody who was heard. The first such finding ends
/// it. Nobody is watched while the attempt is queued.
///
/// A rank that is not heard is silent, which ends the attempt, in these cases:
///  - its node says "stopped", after silent_after;
///  - its node says "gone", kGonePatience later. Executors report ends themselves, with the exit status, which is the
///    better news. So a rank whose node says "ended" is never silent, and none that is suspended;
///  - other ranks are heard, and all of them have stood still for as long as a hang ends an attempt, after
///    silent_after, or silent_after_vouched if its node answers or sees its process. For a shorter time they may wait
///    for what the rank does in silence: an evaluation, an export;
///  - lost_after is over, and no rank that is heard has made progress meanwhile.
/// A rank that has never been heard may have no way to the controller. It is missed after join_within, and what holds
/// for the others holds for it from then on. Where nobody on a scheduler's node is heard and nothing there vouches for
/// anyone, the node is lost instead, once for all its ranks. If such a node answers all the same, its ranks are silent.
/// Until then the attempt is suspected.
///
/// Any program's ranks need say nothing themselves, so their nodes are asked about each from time to time. One whose
/// process is stopped for silent_after is silent. On a scheduler's node a task beside each vouches for it, if only by
/// saying that it has ended; once it has, it is missed as a rank is. A rank that has told of a step of its own accord
/// hangs like any other. Nothing else is concluded.
///
/// A hang is suspected when a rank says for longer than usual (HangLimits) that neither its step nor its section has
/// moved. Ranks wait for one another: one may evaluate while the others stand at a barrier. So a rank gets the longest
/// of the limits of the sections that ranks of its attempt are in. The first steps of an attempt teach nothing, and the
/// generous limit holds for them: programs compile and fill caches then. The suspicion comes at half of the time that
/// ends the attempt at the latest.
///
/// A hang is suspected first, and ends the attempt later: after hung_after without progress, where the user has set it.
/// Else it ends after kEndFactor times the usual time, and after kProgramEndsAtLeast at the least, if nothing came out
/// of the attempt meanwhile either (came_out). The least is kRecipeEndsAtLeast in a recipe: what its sections do is
/// known. A section of any other program says where the program is, and not for how long: an evaluation may have more
/// to read than the ones before it. No rank hangs that has made its last step or leaves, and none after the first
/// rank's exit.
///
/// The time limit is of the time that the attempt runs: from the first word that it is suspended to the first that it
/// is not, its clock stands still, as the scheduler's does.
class AttemptWatch {
 public:
  AttemptWatch(LivenessRules rules, std::uint32_t world_size, core::AttemptNumber number, core::Millis now)
      : rules_(rules), number_(number), started_at_(now), ranks_(world_size), limits_(world_size) {
    fresh_start(now);
  }

  void heard(core::RankNumber rank, const Progress& progress, core::Millis now);
  /// It is there, and has not said how far it is.
  void came(core::RankNumber rank, core::Millis now);
  /// The limits that an earlier attempt has learned, or this one.
  void set_limits(HangLimits limits) { limits_ = std::move(limits); }
  const HangLimits& limits() const { return limits_; }
  /// nullopt: no rank can be found hung now.
  std::optional<LeastProgress> least_progress(core::Millis now) const;
  /// Running longer than the controller has watched it, after a restart.
  void set_started(core::Millis at) { started_at_ = at; }
  /// A person changed it; 0: none.
  void set_time_limit(core::Millis limit, bool hard) {
    if (limit != rules_.time_limit) time_limit_told_ = false;
    rules_.time_limit = limit;
    rules_.limit_is_hard = hard;
  }
  /// Takes in what the job's history knows of the ranks and of the attempt's end. The first time also a suspicion that
  /// an earlier controller has told: the suspicion is judged anew, and is over when everyone has gone on, or is heard.
  void follow(const core::Attempt& attempt, core::Millis now);
  /// The controller was deaf until now (see Hearing): nobody is blamed for what it could not hear.
  void fresh_start(core::Millis now);

  /// Somebody has not been heard for half of what makes a rank silent or a node lost, or takes its time to come.
  bool misses_somebody(core::Millis now) const;
  /// Ranks whose node should be asked before judging: those unheard for too long, and all others on the same node of a
  /// scheduler's.
  std::vector<core::RankNumber> overdue(core::Millis now) const;
  /// Notes what the node of a rank says of the rank. All overdue ranks' words are noted before any of them is judged.
  void note(core::RankNumber rank, executors::Vouch vouch, core::Millis now);
  /// The end that follows from the node's word on an overdue rank, if any does.
  std::optional<core::EventBody> judge(core::RankNumber rank, executors::Vouch vouch, core::Millis now);
  /// A rank has ended because its connection to another one was lost: the node that is silent, if one is. The rank is
  /// the witness that the work stands, so nobody else's word is waited for.
  std::optional<core::EventBody> lost_node(core::Millis now);
  /// Hung ranks and the time limit.
  std::vector<core::EventBody> findings(core::Millis now);
  /// The suspicion that has begun, or is over: each is told once. That a rank is not heard replaces the suspicion that
  /// another one, which may wait for it, hangs. `heard_until`: as for judge().
  std::optional<core::EventBody> suspicion(core::Millis now, core::Millis heard_until);
  /// Something is suspected, so it is worth a look whether anything comes out of the attempt.
  bool is_suspected() const { return suspected_.has_value(); }
  bool looks_hung() const { return suspected_ && suspected_->of == core::Suspicion::kHung; }
  /// Its log, its report or its checkpoint folder has grown or changed.
  void came_out(core::Millis now) { came_out_at_ = now; }
  /// An end that findings() or judge() has returned is not told now. It is judged anew from the next round on, as if
  /// nobody had found it.
  void not_told(const core::EventBody& end);
  /// True when the attempt should have left long ago and must be stopped again. Says so once every stop_grace + 10 s.
  bool must_stop_again(core::Millis now);

  const LivenessRules& rules() const { return rules_; }
  const RankWatch& rank(core::RankNumber rank) const { return ranks_.at(rank); }
  std::uint32_t world_size() const { return static_cast<std::uint32_t>(ranks_.size()); }

  static constexpr core::Millis kGonePatience{2000};
  static constexpr core::Millis kStopAgainAfter{10000};
  /// Between two questions about a rank that only its node tells of.
  static constexpr core::Millis kAskNodeAgain{500};
  /// A scheduler that suspends a job stops ranks and their tasks one by one. What a task said before it was stopped
  /// itself counts for less than this.
  static constexpr core::Millis kStopIsSure{2000};
  static constexpr int kEndFactor = 4;
  static constexpr core::Millis kRecipeEndsAtLeast{60'000}, kProgramEndsAtLeast{600'000};

 private:
  bool may_be_missed(const RankWatch& rank) const { return !queued_ && !draining_ && !rank.exited && !rank.reported; }
  bool watched(const RankWatch& rank) const { return rules_.heartbeats && may_be_missed(rank); }
  /// Nobody but its node need tell of it.
  bool watched_by_node(const RankWatch& rank) const { return !rules_.heartbeats && may_be_missed(rank); }
  std::optional<core::EventBody> judge_by_node(core::RankNumber rank, executors::Vouch vouch, core::Millis now);
  std::optional<core::EventBody> judge_unheard(core::RankNumber rank, executors::Vouch vouch, core::Millis now);
  /// Somebody who is heard tells that the attempt does not go on without this rank.
  bool is_evident(core::RankNumber rank, executors::Vouch vouch, core::Millis now);
  /// The ranks that are heard and tell of progress.
  struct Heard {
    core::Millis at{0};
    bool anybody = false;
    bool all_stand = true;   // for as long as ends the attempt
    bool any_moves = false;  // has made progress within lost_after
  };
  Heard who_is_heard(core::Millis now);
  /// After so long without a word from the rank people are told.
  core::Millis suspected_after(const RankWatch& rank) const {
    if (!rank.joined && rules_.heartbeats) return rules_.join_within;
    return std::max(rules_.silent_after, rules_.silent_after_vouched);
  }
  core::Millis lost_after(const RankWatch& rank) const {
    return rank.joined || !rules_.heartbeats ? rules_.lost_after : rules_.join_within + rules_.lost_after;
  }
  /// It has not been heard for so long. A recipe's rank may never have been heard. Of any other program it is a rank
  /// that the task beside it has vouched for.
  bool is_unheard(const RankWatch& rank, core::Millis limit, core::Millis now) const;
  /// It tells of its progress.
  bool tells(const RankWatch& rank) const { return rules_.heartbeats || rank.has_steps; }
  bool may_hang(const RankWatch& rank) const {
    return may_be_missed(rank) && rank.joined && tells(rank) && !rank.is_done && !somebody_left_;
  }
  HangLimit own_limit(const RankWatch& rank) const;
  /// Times without progress.
  struct Limits {
    HangLimit usual;
    std::string section;   // that has it
    core::Millis ends{0};  // the attempt
  };
  /// The longest of all sections that ranks are in, each for itself.
  Limits limits_now() const;
  std::vector<core::EventBody> ends_by_hang(core::Millis now);
  core::Millis end_limit(const std::string& section, const HangLimit& usual) const;
  core::LimitSource source_of(const HangLimit& usual) const {
    if (rules_.hung_after.count() > 0) return core::LimitSource::kUser;
    return usual.learned_from > 0 ? core::LimitSource::kLearned : core::LimitSource::kNotLearnedYet;
  }
  bool only_one_reports() const {
    return !rules_.heartbeats && ranks_.size() > 1 && std::ranges::count_if(ranks_, &RankWatch::has_steps) == 1;
  }
  /// The ranks without progress for so long, the one that is behind the others first.
  std::vector<core::RankNumber> hung(core::Millis limit, core::Millis now) const;
  /// Each notes whom it suspects, if it suspects somebody.
  std::optional<core::AttemptSuspected> suspect_unheard(core::Millis heard_until);
  std::optional<core::AttemptSuspected> suspect_hung(core::Millis now);
  std::optional<core::EventBody> suspect(core::Millis now, core::Millis heard_until) {
    if (auto unheard = tell(suspect_unheard(heard_until), now)) return unheard;
    return tell(suspect_hung(now), now);
  }
  std::optional<core::EventBody> tell(const std::optional<core::AttemptSuspected>& suspected, core::Millis now);
  /// True if each of these ranks has gone on, or is heard, since that moment.
  bool is_refuted(core::Suspicion of, const std::vector<core::RankNumber>& ranks, core::Millis since) const;
  std::optional<core::EventBody> judge_inherited(core::Millis now, core::Millis heard_until);
  bool hangs(const RankWatch& rank, core::Millis limit, core::Millis now) const;
  void begin_anew(RankWatch& rank, core::Millis now) {
    rank.progress_at = now;
    rank.may_teach = false;
  }
  void note_change(core::RankNumber rank, core::Millis now) {
    if (last_change_.rank != rank) change_before_ = last_change_.at;
    last_change_ = {rank, now};
  }
  core::Millis last_change_by_other(core::RankNumber rank) const {
    return last_change_.rank != rank ? last_change_.at : change_before_;
  }

  LivenessRules rules_;
  core::AttemptNumber number_;
  core::Millis started_at_;
  std::vector<RankWatch> ranks_;
  HangLimits limits_;
  bool somebody_left_ = false;
  std::pair<std::string, core::Millis> before_hang_;  // what the section's limit was before the newest end by a hang
  core::Millis came_out_at_{0};
  std::optional<Heard> heard_;
  std::optional<core::AttemptSuspected> suspected_;
  core::Millis suspected_at_{0};
  std::vector<core::RankNumber> doubted_;     // the ranks that are suspected
  std::optional<core::Suspicion> inherited_;  // from an earlier controller, which knew the ranks
  core::Millis inherited_at_{0};
  bool is_followed_ = false;
  /// The newest change of a rank's section, and the newest one by another rank than that.
  struct Change {
    core::RankNumber rank = 0;
    core::Millis at{-1};
  };
  Change last_change_;
  core::Millis change_before_{-1};
  std::unordered_map<std::string, std::vector<core::RankNumber>> by_node_;  // those whose node is known
  /// Nobody on that rank's node was heard or vouched for within silent_after.
  bool node_is_silent(core::RankNumber rank, core::Millis now) const;
  void move_to(core::RankNumber rank, const std::string& node);
  void add_neighbours(std::vector<core::RankNumber>& overdue) const;
  core::RankSilent silent(core::RankNumber rank, core::Millis silence, executors::Vouch vouch);
  core::NodeLost lose_node(core::RankNumber rank, core::Millis now);
  /// After this long the ranks are asked to save; 0: never.
  core::Millis save_at() const {
    if (!rules_.limit_is_hard || rules_.time_limit.count() <= 0) return rules_.time_limit;
    return rules_.time_limit - std::min(rules_.stop_grace, rules_.time_limit / 2);
  }
  void stand_still(const RankWatch& rank);
  void go_on(core::Millis now);

  bool scheduled_ = false;  // on nodes that a scheduler gave, rather than on this machine
  bool queued_ = false;     // in a scheduler's queue: nobody can be heard yet
  bool draining_ = false;
  bool time_limit_told_ = false;
  core::Millis draining_since_{0};
  std::optional<core::Millis> still_since_;  // suspended
  core::Millis stood_still_{0};              // before that, altogether
  core::Millis went_on_at_{0};
};

/// The name that the program has given the section, or else the section's name as people read it: "init", "data",
/// "step", "checkpoint", "done".
std::string section_name(int section, const std::string& own_name);

}  // namespace ranks
