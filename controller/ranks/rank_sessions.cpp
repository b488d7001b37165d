#include "controller/ranks/rank_sessions.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/durable_file.h"
#include "controller/common/tokens.h"
#include "controller/ranks/reports.h"

namespace ranks {
namespace {

namespace v1 = muster::v1;
using common::Outcome;
using common::Refusal;

constexpr std::size_t kMostEndpoint = 300;
/// An agent sends no larger one (agent/watch/report.h).
constexpr std::size_t kMostConfig = 64 << 10;
constexpr std::size_t kTokensKept = 4096;

}  // namespace

RankSessions::RankSessions(Parts parts, common::DataFolder data, std::string secret, bool threads)
    : parts_(parts),
      data_(std::move(data)),
      secret_(std::move(secret)),
      begun_at_(parts_.clock.wall()),
      errands_(threads),
      streams_({parts_.clock, parts_.live_ranks, parts_.metrics, parts_.changes, parts_.pace,
                [this](const v1::HeartbeatRequest& request) { return write(request); }}),
      tasks_({parts_.clock, parts_.executor, parts_.live_ranks, parts_.changes, parts_.pace}) {
  parts_.metrics.on_settled([this] { streams_.settle(); });
}

std::string RankSessions::token_of(const core::AttemptKey& attempt) {
  {
    std::lock_guard lock(tokens_mutex_);
    if (const auto known = tokens_.find(attempt); known != tokens_.end()) return known->second;
  }
  auto token = common::rank_token(secret_, attempt.job, attempt.number);
  std::lock_guard lock(tokens_mutex_);
  if (tokens_.size() >= kTokensKept) tokens_.clear();
  return tokens_.emplace(attempt, std::move(token)).first->second;
}

Outcome<RankSessions::Caller> RankSessions::identify(const v1::RankKey& key, const std::string& token) {
  if (!common::same_secret(token, token_of({key.job_id(), key.attempt()}))) {
    return Refusal{Refusal::Kind::kUnauthenticated, "this is not the token of job " + std::to_string(key.job_id()) +
                                                        " attempt " + std::to_string(key.attempt())};
  }
  return find(key);
}

Outcome<RankSessions::Caller> RankSessions::find(const v1::RankKey& key) {
  Caller caller{{}, {key.job_id(), key.attempt()}, key.rank(), nullptr, nullptr};
  try {
    caller.spec = parts_.specs.get(caller.key.job);
    place(caller);
  } catch (const std::exception& e) {
    return Refusal::unavailable(e.what());
  }
  if (caller.job == nullptr || caller.spec == nullptr) return Refusal::no_job(caller.key.job);
  if (caller.rank >= caller.job->world_size) {
    return Refusal::invalid("rank " + std::to_string(caller.rank) + " of a job with " +
                            std::to_string(caller.job->world_size) + " ranks");
  }
  return caller;
}

void RankSessions::place(Caller& caller) {
  caller.job = parts_.event_log.job(caller.key.job);
  if (caller.job == nullptr || caller.spec == nullptr) return;
  static_cast<AttemptStanding&>(caller) = standing_of(*caller.job, caller.key.number);
  if (!caller.current && !caller.upcoming) return;
  const auto now = parts_.clock.monotonic();
  parts_.live_ranks.track(caller.key, liveness_rules(*caller.spec), caller.job->world_size, now, now);
}

Outcome<bool> RankSessions::is_there(const v1::RankKey& key, const std::string& token) {
  const auto found = identify(key, token);
  if (!found.ok()) return found.refusal();
  return found.value().current || found.value().upcoming;
}

Outcome<v1::RegisterResponse> RankSessions::register_rank(const v1::RegisterRequest& request,
                                                          const std::string& token) {
  auto found = identify(request.key(), token);
  if (!found.ok()) return found.refusal();
  auto& caller = found.value();
  if (request.world_size() != caller.job->world_size) {
    return Refusal::invalid("a rank of " + std::to_string(request.world_size()) + " registers for a job of " +
                            std::to_string(caller.job->world_size) +
                            " ranks; WORLD_SIZE must not be changed by the job");
  }
  parts_.live_ranks.registered(caller.key, caller.rank, parts_.clock.monotonic(), request.node(), request.pid());
  // The agent of a program registers also to tell that no line can be read.
  if (!caller.job->is_command) join(caller, request.node(), request.pid());
  v1::RegisterResponse response;
  response.set_directive(caller.directive);
  response.set_heartbeat_interval_ms(interval_of(caller).count());
  return response;
}

Outcome<v1::HeartbeatResponse> RankSessions::heartbeat(const v1::HeartbeatRequest& request, const std::string& token) {
  auto found = identify(request.key(), token);
  if (!found.ok()) return found.refusal();
  auto& caller = found.value();
  // First of all: a disk that stands still must not make ranks look silent.
  const bool moved = parts_.live_ranks.heartbeat(caller.key, caller.rank, request, parts_.clock.monotonic());
  // Who makes single calls hears of no trace.
  parts_.live_ranks.said_of_trace(caller.key, caller.rank, nullptr);
  v1::HeartbeatResponse response;
  response.set_metrics_accepted(take_metrics(caller, request, core::Millis(0), false));
  response.set_checkpoints_accepted(write(caller, request).checkpoints);
  // Facts written meanwhile may have changed what the rank is to do.
  place(caller);
  response.set_directive(caller.directive);
  response.set_heartbeat_interval_ms(interval_of(caller).count());
  if (moved || request.metrics_size() > 0) parts_.changes.bump(caller.key.job);
  return response;
}

Outcome<std::shared_ptr<RankStream>> RankSessions::open(const v1::RankKey& key, const std::string& token,
                                                        TellRank tell) {
  auto found = identify(key, token);
  if (!found.ok()) return found.refusal();
  auto& caller = found.value();
  parts_.live_ranks.registered(caller.key, caller.rank, parts_.clock.monotonic());
  note_return(caller);
  const RankStreams::Rank rank{caller.key, caller.rank, interval_of_job(caller), keeps_rows(caller)};
  return streams_.open(rank, std::move(tell), [&] { return standing_now(caller); });
}

void RankSessions::note_return(const Caller& caller) {
  const auto* attempt = caller.attempt();
  if (attempt != nullptr && attempt->started_at && *attempt->started_at < begun_at_) {
    parts_.pace.came_back(parts_.clock.monotonic());
  }
}

AttemptStanding RankSessions::standing_now(Caller& caller) {
  try {
    place(caller);
  } catch (const std::exception& e) {
    spdlog::warn("job {}: {}", caller.key.job, e.what());
  }
  return caller;
}

RankStreams::Written RankSessions::write(const v1::HeartbeatRequest& request) {
  try {
    auto found = find(request.key());
    if (found.ok()) return write(found.value(), request);
  } catch (const std::exception& e) {
    spdlog::warn("job {}: a heartbeat of rank {} is not written: {}", request.key().job_id(), request.key().rank(),
                 e.what());
  }
  return {};
}

RankStreams::Written RankSessions::write(Caller& caller, const v1::HeartbeatRequest& request) {
  // Before it is gone, and before others can have noticed.
  if (caller.current && request.leaving() && request.exit_code() != 0) {
    parts_.executor.failing(caller.key, caller.rank);
  }
  RankStreams::Written written;
  const auto view = parts_.live_ranks.view(caller.key, caller.rank);
  const bool reports = !caller.job->is_command || (view && view->reports);
  written.joined = reports && join(caller, view ? view->node : std::string(), view ? view->pid : 0);
  written.resumed = tell_resumed(caller, request, false);
  written.described = describe(caller, false);
  written.checkpoints = take_checkpoints(caller, request, false);
  return written;
}

// A rank known as starting has spoken, or one of any program, which nobody expects to. If that cannot be written now,
// its next word says it again.
bool RankSessions::join(Caller& caller, const std::string& node, std::int64_t pid) {
  const auto* attempt = caller.attempt();
  if (attempt == nullptr) return false;
  if (attempt->state == core::AttemptState::kDraining || caller.rank >= attempt->ranks.size()) return true;
  const auto& rank = attempt->ranks[caller.rank];
  const bool first_report = caller.job->is_command && !rank.reports && rank.state == core::RankState::kRunning;
  if (rank.state != core::RankState::kStarting && !first_report) return true;
  const auto outcome = parts_.event_log.report(
      caller.key.job,
      core::RankJoined{caller.key.number, caller.rank, node.empty() ? rank.node : node, pid == 0 ? rank.pid : pid});
  if (outcome.ok()) place(caller);
  return outcome.ok();
}

// The ranks agree on it, so rank 0 speaks for all.
bool RankSessions::tell_resumed(const Caller& caller, const v1::HeartbeatRequest& request, bool last_words) {
  const auto* attempt = caller.attempt();
  if (attempt != nullptr && attempt->resumed_from_step) return true;
  if (caller.rank != 0 || !request.has_resumed_from_step()) return false;
  return tell(caller, core::AttemptResumed{caller.key.number, request.resumed_from_step()}, last_words);
}

// Facts of an attempt whose launch is not recorded yet, and all that the store does not take now: ranks say them again,
// unless these are their last words.
bool RankSessions::tell(const Caller& caller, core::EventBody body, bool last_words) {
  if (caller.current && parts_.event_log.report(caller.key.job, body).ok()) return true;
  if (last_words && (caller.current || caller.upcoming)) parts_.event_log.keep(caller.key.job, std::move(body));
  return false;
}

// Late metrics of an attempt that is over are as true as any. Those of one that never was, or of
// a removed job, are not kept.
bool RankSessions::keeps_rows(const Caller& caller) {
  return !caller.job->removed_at && (caller.upcoming || caller.key.number <= caller.job->attempts.size());
}

// Rank 0 speaks for all.
bool RankSessions::describe(const Caller& caller, bool last_words) {
  if (caller.rank != 0) return false;
  const auto view = parts_.live_ranks.view(caller.key, caller.rank);
  if (!view || view->program == nullptr) return true;
  const auto& words = *view->program;
  if (words.config().size() > kMostConfig) return true;
  const auto& known = caller.job->program;
  const bool more_steps = words.total_steps() > 0 && words.total_steps() != known.total_steps;
  const bool other_config = !words.config().empty() && words.config() != known.config;
  if (!more_steps && !other_config) return true;
  return tell(caller, core::ProgramDescribed{caller.key.number, words.total_steps(), words.config()}, last_words);
}

// Rows that are read of a file after the rank's end say nothing of the steps before those rows.
std::uint32_t RankSessions::take_metrics(const Caller& caller, const v1::HeartbeatRequest& request,
                                         core::Millis patience, bool last_words) {
  const auto count = std::min<std::size_t>(static_cast<std::size_t>(request.metrics_size()), kMostMetrics);
  std::vector<store::MetricRow> rows;
  for (std::size_t i = 0; keeps_rows(caller) && i < count; ++i) {
    rows.push_back(row_of(caller.key, caller.rank, request.metrics(static_cast<int>(i))));
  }
  if (rows.empty()) return static_cast<std::uint32_t>(count);
  parts_.live_ranks.steps(caller.key, rows);
  const auto durable = parts_.metrics.add(rows, declared_of(caller.key, request), patience);
  if (durable > 0 && !last_words) parts_.live_ranks.set_durable_step(caller.key, caller.rank, rows[durable - 1].step);
  return static_cast<std::uint32_t>(durable);
}

// Rank 0 says when a checkpoint is complete. One that is not ours to record is acknowledged all the same, so that it
// is not sent for ever. After a rank's last words the end of its attempt is given to the event log, and an attempt that
// has ended takes no checkpoint any more: what the store refuses of last words is kept there before that end.
std::uint32_t RankSessions::take_checkpoints(const Caller& caller, const v1::HeartbeatRequest& request,
                                             bool last_words) {
  const auto all = static_cast<std::uint32_t>(request.checkpoints_size());
  if (caller.rank != 0 || (!caller.current && !caller.upcoming)) return all;
  std::uint32_t accepted = 0;
  bool refused = caller.upcoming;  // for a moment
  for (const auto& checkpoint : request.checkpoints()) {
    const auto told = parts_.live_ranks.checkpoint_told(caller.key);
    if (!told || checkpoint.step() > *told) {
      const bool is_programs = !checkpoint.path().empty();
      const core::CheckpointSaved saved{caller.key.number, checkpoint.step(), core::Millis(checkpoint.at_ms()),
                                        checkpoint.path(), is_programs ? checkpoint.bytes() : -1};
      refused = refused || !parts_.event_log.report(caller.key.job, saved).ok();
      if (refused && !last_words) return accepted;
      if (refused) parts_.event_log.keep(caller.key.job, saved);
      parts_.live_ranks.set_checkpoint_told(caller.key, checkpoint.step());
    }
    accepted += refused ? 0 : 1;
  }
  return accepted;
}

Outcome<v1::RendezvousResponse> RankSessions::rendezvous(const v1::RendezvousRequest& request,
                                                         const std::string& token) {
  auto found = identify(request.key(), token);
  if (!found.ok()) return found.refusal();
  const auto& caller = found.value();
  v1::RendezvousResponse response;
  response.set_directive(caller.directive);
  if (!caller.current && !caller.upcoming) return response;
  if (!request.endpoint().empty()) {
    if (caller.rank != 0 || request.endpoint().size() > kMostEndpoint ||
        request.endpoint().find(':') == std::string::npos) {
      return Refusal::invalid("endpoint: want host:port, from rank 0 alone");
    }
    parts_.live_ranks.set_endpoint(caller.key, request.endpoint());
    keep_endpoint(caller.key, request.endpoint());
  }
  response.set_endpoint(known_endpoint(caller.key));
  if (response.endpoint().empty() && parts_.hearing.stuck_since()) {
    // "Not yet" would be held against rank 0, which may wait for the same disk.
    return Refusal::unavailable("the disk of the data folder stands still; rank 0 may wait for it");
  }
  return response;
}

// The executor draws the conclusions: it knows what its scheduler says of the same attempt.
Outcome<v1::TaskResponse> RankSessions::task(const v1::TaskRequest& request, const std::string& token) {
  auto found = identify(request.key(), token);
  if (!found.ok()) return found.refusal();
  const auto& caller = found.value();
  if (caller.current || caller.upcoming) tasks_.note(caller.key, caller.rank, request);
  return tasks_.answer(task_of(caller), caller);
}

Outcome<std::shared_ptr<TaskStream>> RankSessions::open_task(const v1::RankKey& key, const std::string& token,
                                                             TellTask tell) {
  auto found = identify(key, token);
  if (!found.ok()) return found.refusal();
  auto& caller = found.value();
  note_return(caller);
  return tasks_.open(task_of(caller), std::move(tell), [&] { return standing_now(caller); });
}

TaskStreams::Rank RankSessions::task_of(const Caller& caller) {
  return {caller.key,
          caller.rank,
          interval_of_job(caller),
          jobs::stop_grace(*caller.spec, false),
          jobs::stop_grace(*caller.spec, true),
          caller.job->is_command,
          caller.job->world_size};
}

// On disk before rank 0 is answered, unless the disk takes its time: only a restart of the controller in the next
// seconds would miss it then.
void RankSessions::keep_endpoint(const core::AttemptKey& key, const std::string& endpoint) {
  const auto write = [path = data_.rendezvous(key), job = key.job, endpoint] {
    try {
      base::write_file_durably(path, endpoint);
    } catch (const std::exception& e) {
      spdlog::warn("job {}: the meeting point is not on disk: {}", job, e.what());
    }
  };
  if (!errands_.run(write, common::Hearing::kPatience))
    spdlog::warn("job {}: the meeting point is not on disk yet", key.job);
}

std::string RankSessions::known_endpoint(const core::AttemptKey& key) {
  auto endpoint = parts_.live_ranks.endpoint(key);
  if (!endpoint.empty()) return endpoint;
  try {
    endpoint = base::read_small_file(data_.rendezvous(key), kMostEndpoint);
  } catch (const std::exception& e) {
    spdlog::warn("job {}: the meeting point cannot be read: {}", key.job, e.what());
  }
  if (!endpoint.empty()) parts_.live_ranks.set_endpoint(key, endpoint);
  return endpoint;
}

}  // namespace ranks
