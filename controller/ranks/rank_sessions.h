#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "controller/common/changes.h"
#include "controller/common/data_folder.h"
#include "controller/common/hearing.h"
#include "controller/common/loop.h"
#include "controller/jobs/event_log.h"
#include "controller/jobs/specs.h"
#include "controller/ranks/live_ranks.h"
#include "controller/ranks/rank_metrics.h"
#include "controller/ranks/rank_streams.h"

namespace ranks {

/// The answers to ranks: their tokens, directives, and what of their news is durable. Thread-safe.
///
/// A heartbeat is noted before anything is written, and answered whatever the disk does: what is not durable by then is
/// not acknowledged, and the rank tells it again. RankStreams and TaskStreams have the streams; single calls are for
/// older workers.
class RankSessions {
 public:
  struct Parts {
    common::Clock& clock;
    executors::Executor& executor;
    jobs::EventLog& event_log;
    MetricsWriter& metrics;
    LiveRanks& live_ranks;
    jobs::SpecCache& specs;
    common::Changes& changes;
    common::Hearing& hearing;
    Pace& pace;
  };
  /// Without `threads` everything is done in the caller's thread.
  RankSessions(Parts parts, common::DataFolder data, std::string secret, bool threads);

  common::Outcome<muster::v1::RegisterResponse> register_rank(const muster::v1::RegisterRequest& request,
                                                              const std::string& token);
  common::Outcome<muster::v1::HeartbeatResponse> heartbeat(const muster::v1::HeartbeatRequest& request,
                                                           const std::string& token);
  common::Outcome<std::shared_ptr<RankStream>> open(const muster::v1::RankKey& key, const std::string& token,
                                                    TellRank tell);
  RankStreams& streams() { return streams_; }
  /// The job's history has gone on: tells ranks and tasks whose directive has changed.
  void follow(const core::Job& job) {
    streams_.follow(job);
    tasks_.follow(job);
  }
  /// The ranks of this attempt are asked for another trace.
  void tell_trace(const core::AttemptKey& key) { streams_.tell_trace(key); }
  /// The tasks of this attempt are asked for other stacks.
  void tell_stacks(const core::AttemptKey& key) { tasks_.tell_stacks(key); }
  /// A refusal, unless the token is this rank's and its job is there. The answer: the attempt has not ended.
  common::Outcome<bool> is_there(const muster::v1::RankKey& key, const std::string& token);
  /// Answers at once, with an empty endpoint while it is not known.
  common::Outcome<muster::v1::RendezvousResponse> rendezvous(const muster::v1::RendezvousRequest& request,
                                                             const std::string& token);
  common::Outcome<muster::v1::TaskResponse> task(const muster::v1::TaskRequest& request, const std::string& token);
  common::Outcome<std::shared_ptr<TaskStream>> open_task(const muster::v1::RankKey& key, const std::string& token,
                                                         TellTask tell);
  /// Takes in what a rank that has ended could not tell any more, as if it told it now: call it before its end is given
  /// to the event_log. Checkpoints that the store does not take now come before that end all the same; metrics are
  /// read again by take_what_waits(). So is all of a rank whose agent still tells; what it has told by then is no loss.
  /// Never throws.
  void take_unsent(const core::AttemptKey& key, core::RankNumber rank);
  /// Does take_unsent() for all ranks of the attempt.
  void take_unsent(const core::AttemptKey& key);
  /// Looks, in take_what_waits(), for what ranks of these attempts, which are over, have left unread.
  void search_unsent(std::vector<core::AttemptKey> attempts);
  /// Reads again, from time to time until all is in the store, what could not be taken in. Call it often.
  void take_what_waits();
  /// How long take_what_waits() has nothing to do; nullopt: until something else happens.
  std::optional<core::Millis> next_wait();

 private:
  /// The most rows that are taken of one request.
  static constexpr std::size_t kMostMetrics = 512;
  /// Where an attempt stands when one of its ranks calls.
  struct Caller : AttemptStanding {
    core::AttemptKey key;
    core::RankNumber rank = 0;
    jobs::JobPtr job;
    jobs::SpecPtr spec;
    const core::Attempt* attempt() const { return current ? &job->attempts[key.number - 1] : nullptr; }
  };
  enum class Late {
    kTaken,     // all of it is in the store
    kLater,     // the store does not take it now
    kNotTaken,  // it is nobody's whom this store knows
  };
  using RankKey = std::pair<core::AttemptKey, core::RankNumber>;
  Late read_late(const RankKey& rank);
  /// Takes in what the rank's report file holds and nobody has told.
  Late read_reports(const RankKey& rank);
  /// An agent may still be telling what its rank has reported.
  bool is_telling(const RankKey& rank);
  Late take_late(const muster::v1::HeartbeatRequest& request, bool with_metrics);
  bool end_is_recorded(const RankKey& rank) const;
  void search_some();
  common::Outcome<Caller> find(const muster::v1::RankKey& key);
  common::Outcome<Caller> identify(const muster::v1::RankKey& key, const std::string& token);
  void place(Caller& caller);
  std::string token_of(const core::AttemptKey& attempt);
  AttemptStanding standing_now(Caller& caller);
  static core::Millis interval_of_job(const Caller& caller) {
    return core::Millis(caller.spec->liveness().heartbeat_interval_ms());
  }
  core::Millis interval_of(const Caller& caller) const { return parts_.pace.interval(interval_of_job(caller)); }
  static TaskStreams::Rank task_of(const Caller& caller);
  /// A rank that ran before this controller began is here again, or its task.
  void note_return(const Caller& caller);
  static bool keeps_rows(const Caller& caller);
  RankStreams::Written write(const muster::v1::HeartbeatRequest& request);
  RankStreams::Written write(Caller& caller, const muster::v1::HeartbeatRequest& request);
  /// False: the rank's start is not in the history yet.
  bool join(Caller& caller, const std::string& node, std::int64_t pid);
  /// False: where the attempt has gone on from is not in the history yet.
  bool tell_resumed(const Caller& caller, const muster::v1::HeartbeatRequest& request, bool last_words);
  /// False: what the program told of its run is not in the history yet.
  bool describe(const Caller& caller, bool last_words);
  /// False: it is not in the history yet. With `last_words` it is kept for it.
  bool tell(const Caller& caller, core::EventBody body, bool last_words);
  /// How many of the request's metrics, counted from the first, are durable after `patience`.
  std::uint32_t take_metrics(const Caller& caller, const muster::v1::HeartbeatRequest& request, core::Millis patience,
                             bool last_words);
  /// How many of the request's checkpoints, counted from the first, are in the history.
  std::uint32_t take_checkpoints(const Caller& caller, const muster::v1::HeartbeatRequest& request, bool last_words);
  void keep_endpoint(const core::AttemptKey& key, const std::string& endpoint);
  std::string known_endpoint(const core::AttemptKey& key);

  Parts parts_;
  const common::DataFolder data_;
  const std::string secret_;
  const core::Time begun_at_;
  common::Errands errands_;
  RankStreams streams_;
  TaskStreams tasks_;

  std::mutex tokens_mutex_;
  std::map<core::AttemptKey, std::string> tokens_;  // computing one costs more than looking it up

  std::mutex unread_mutex_;
  std::set<RankKey> unread_;  // their files are to be read again; at most one a rank
  std::deque<core::AttemptKey> to_search_;
  core::Millis read_again_at_{0};
};

}  // namespace ranks
