#include <spdlog/spdlog.h>

#include <algorithm>
#include <system_error>

#include "agent/report/grpc_reports.h"
#include "agent/watch/agent_files.h"
#include "base/durable_file.h"
#include "base/numbers.h"
#include "controller/ranks/rank_sessions.h"
#include "controller/ranks/reports.h"

// Ranks that have ended leave files with what they could not tell: RankSessions reads these files.

namespace ranks {
namespace {

namespace v1 = muster::v1;
using common::Refusal;

/// Files of ended ranks whose contents the store did not take are read again after this time.
constexpr core::Millis kReadAgainAfter{1000};
/// Looked through in one round, so that a network folder holds nobody up.
constexpr int kFoldersAtOnce = 50;

/// The end alone of a long report file is read, so the agent may know of more bad lines. An agent that still tells will
/// tell what is left out of the file.
void keep_words(const v1::ProgramWords& known, v1::ProgramWords& words, bool is_told_still) {
  if (is_told_still) words.set_source_trouble(known.source_trouble());
  if (known.bad_lines() <= words.bad_lines()) return;
  words.set_bad_lines(known.bad_lines());
  words.set_first_bad_line(known.first_bad_line());
}

}  // namespace

void RankSessions::take_unsent(const core::AttemptKey& key, core::RankNumber rank) {
  const auto unsent = read_late({key, rank});
  const auto reports = read_reports({key, rank});
  const bool is_refused = unsent == Late::kLater || reports == Late::kLater;
  if (!is_refused && !is_telling({key, rank})) return;
  if (is_refused) {
    spdlog::warn("job {} attempt {}: not all of what rank {} told can be taken now; it is read again", key.job,
                 key.number, rank);
  }
  std::lock_guard lock(unread_mutex_);
  unread_.insert({key, rank});
}

bool RankSessions::is_telling(const RankKey& rank) {
  const auto& [key, number] = rank;
  const auto view = parts_.live_ranks.view(key, number);
  return view && view->reports && !view->has_left && streams_.is_open(key);
}

// Goes on after a refusal: what the end must not overtake stands behind it.
RankSessions::Late RankSessions::read_late(const RankKey& rank) {
  const auto& [key, number] = rank;
  const auto file = data_.unsent(key, number);
  try {
    Late all = Late::kTaken;
    int reports = 0;
    read_unsent(file, [&](const v1::HeartbeatRequest& request) {
      const auto& from = request.key();
      const bool own = from.job_id() == key.job && from.attempt() == key.number && from.rank() == number;
      reports += own ? 1 : 0;
      const auto taken = own ? take_late(request, all == Late::kTaken) : Late::kNotTaken;
      if (taken != Late::kTaken) all = taken;
      return all != Late::kNotTaken;
    });
    if (all == Late::kNotTaken) spdlog::warn("{}: not this rank's words; they stay there", file.string());
    if (all != Late::kTaken) return all;
    if (reports > 0) spdlog::info("job {} attempt {}: read what rank {} could not send", key.job, key.number, number);
    std::error_code none;
    if (reports > 0 || std::filesystem::file_size(file, none) == 0) std::filesystem::remove(file);
    return all;
  } catch (const std::system_error& e) {
    spdlog::warn("job {} attempt {}: what rank {} could not send: {}", key.job, key.number, number, e.what());
    return base::lacks_room(e.code().value()) ? Late::kLater : Late::kNotTaken;
  } catch (const std::exception& e) {
    spdlog::warn("job {} attempt {}: what rank {} could not send is lost: {}", key.job, key.number, number, e.what());
    return Late::kNotTaken;
  }
}

// Its agent was killed, or its node is lost, before all was told.
RankSessions::Late RankSessions::read_reports(const RankKey& rank) {
  const auto& [key, number] = rank;
  try {
    const auto job = parts_.event_log.job(key.job);
    const auto view = parts_.live_ranks.view(key, number);
    const bool was_told = view && view->has_left && !view->blind;
    if (job == nullptr || !job->is_command || was_told) return Late::kTaken;
    v1::RankKey of_rank;
    of_rank.set_job_id(key.job);
    of_rank.set_attempt(key.number);
    of_rank.set_rank(number);
    // Rows that are durable and come again are ignored. The file's rows are in the order of their steps, those of other
    // sources are not.
    const auto spec = parts_.specs.get(key.job);
    const bool one_source = spec != nullptr && !spec->has_report();
    const bool is_told_still = is_telling(rank);
    const auto known = view && view->program ? *view->program : v1::ProgramWords();
    Late all = Late::kTaken;
    int reports = 0;
    agent::report::read_reports_late(agent::watch::rank_files(data_.logs(key), number).report, of_rank,
                                     view && one_source ? view->durable_step : 0, [&](v1::HeartbeatRequest request) {
                                       ++reports;
                                       // Until all of the file is stored, the rank counts as one that did not tell it.
                                       request.set_blind(view && view->blind);
                                       if (request.has_program())
                                         keep_words(known, *request.mutable_program(), is_told_still);
                                       const auto taken = take_late(request, all == Late::kTaken);
                                       if (taken != Late::kTaken) all = taken;
                                       return all != Late::kNotTaken;
                                     });
    if (reports > 0) spdlog::info("job {} attempt {}: read the report file of rank {}", key.job, key.number, number);
    return all;
  } catch (const std::exception& e) {
    spdlog::warn("job {} attempt {}: the report file of rank {}: {}", key.job, key.number, number, e.what());
    return Late::kNotTaken;
  }
}

void RankSessions::take_unsent(const core::AttemptKey& key) {
  core::RankNumber ranks = 0;
  try {
    if (const auto job = parts_.event_log.job(key.job)) ranks = job->world_size;
  } catch (const std::exception& e) {
    spdlog::warn("job {} attempt {}: what its ranks could not send stays unread: {}", key.job, key.number, e.what());
  }
  for (core::RankNumber rank = 0; rank < ranks; ++rank) take_unsent(key, rank);
}

RankSessions::Late RankSessions::take_late(const v1::HeartbeatRequest& request, bool with_metrics) {
  auto found = find(request.key());
  if (!found.ok()) return found.refusal().kind == Refusal::Kind::kUnavailable ? Late::kLater : Late::kNotTaken;
  auto& caller = found.value();
  parts_.live_ranks.heartbeat(caller.key, caller.rank, request, parts_.clock.monotonic());
  const auto view = parts_.live_ranks.view(caller.key, caller.rank);
  if (caller.job->is_command && view && view->reports) join(caller, view->node, view->pid);
  tell_resumed(caller, request, true);
  describe(caller, true);
  const bool checkpoints =
      take_checkpoints(caller, request, true) == static_cast<std::uint32_t>(request.checkpoints_size());
  const auto most = std::min<std::size_t>(static_cast<std::size_t>(request.metrics_size()), kMostMetrics);
  const bool metrics =
      most == 0 || (with_metrics && take_metrics(caller, request, common::Hearing::kPatience, true) == most);
  parts_.changes.bump(caller.key.job);
  return metrics && checkpoints ? Late::kTaken : Late::kLater;
}

void RankSessions::search_unsent(std::vector<core::AttemptKey> attempts) {
  std::lock_guard lock(unread_mutex_);
  to_search_.insert(to_search_.end(), attempts.begin(), attempts.end());
}

void RankSessions::search_some() {
  std::lock_guard lock(unread_mutex_);
  for (int looked = 0; looked < kFoldersAtOnce && !to_search_.empty(); ++looked) {
    const auto key = to_search_.front();
    to_search_.pop_front();
    constexpr std::string_view kStart = "rank-";
    std::error_code none;
    for (std::filesystem::directory_iterator file(data_.unsent(key, 0).parent_path(), none), end; !none && file != end;
         file.increment(none)) {
      const auto name = file->path().filename().string();
      if (!name.starts_with(kStart)) continue;
      const auto rank = base::whole_number<core::RankNumber>(std::string_view(name).substr(kStart.size()));
      if (rank) unread_.insert({key, *rank});
    }
  }
}

// Facts kept for the event_log are in memory alone until the rank's end, which comes after them, is in the store.
bool RankSessions::end_is_recorded(const RankKey& rank) const {
  const auto& [key, number] = rank;
  jobs::JobPtr job;
  try {
    job = parts_.event_log.job(key.job);
  } catch (const std::exception&) {
    return false;
  }
  if (job == nullptr || key.number == 0 || key.number > job->attempts.size()) return job == nullptr;
  const auto& attempt = job->attempts[key.number - 1];
  if (attempt.state == core::AttemptState::kEnded || number >= attempt.ranks.size()) return true;
  return attempt.ranks[number].state == core::RankState::kExited;
}

std::optional<core::Millis> RankSessions::next_wait() {
  std::lock_guard lock(unread_mutex_);
  if (!to_search_.empty()) return core::Millis(0);
  if (unread_.empty()) return std::nullopt;
  return std::max(read_again_at_ - parts_.clock.monotonic(), core::Millis(0));
}

void RankSessions::take_what_waits() {
  search_some();
  std::vector<RankKey> unread;
  {
    const auto now = parts_.clock.monotonic();
    std::lock_guard lock(unread_mutex_);
    if (unread_.empty() || now < read_again_at_) return;
    read_again_at_ = now + kReadAgainAfter;
    unread.assign(unread_.begin(), unread_.end());
  }
  for (const auto& rank : unread) {
    if (!end_is_recorded(rank) || is_telling(rank)) continue;
    if (read_late(rank) == Late::kLater || read_reports(rank) == Late::kLater) return;
    std::lock_guard lock(unread_mutex_);
    unread_.erase(rank);
  }
}

}  // namespace ranks
