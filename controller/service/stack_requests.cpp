#include "controller/service/stack_requests.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <variant>

#include "agent/protocol/files.h"
#include "base/words.h"
#include "controller/core/core_text.h"
#include "controller/service/standing.h"
#include "controller/stacks/compare.h"

namespace service {
namespace {

namespace v1 = muster::v1;
using common::Outcome;
using common::Refusal;

/// The part of a rank's text that is compared with the texts of the others.
constexpr std::size_t kComparedBytes = std::size_t{64} << 10;

void fill(const stacks::StackSet& set, v1::StackSet& out) {
  out.set_number(set.number);
  out.set_at_ms(set.at_ms);
  out.set_why(set.why);
  out.set_user(set.user);
  out.set_given(static_cast<std::uint32_t>(set.given.size()));
  out.set_ranks(set.ranks);
  out.set_over(set.over);
}

bool runs(const core::Attempt& attempt) {
  using State = core::AttemptState;
  return attempt.state == State::kRunning || attempt.state == State::kStarting || attempt.state == State::kDraining;
}

/// It ends its attempt, and stacks are worth waiting for: an attempt that fails by itself has said why.
bool waits_for_stacks(const core::EventBody& body) {
  return std::holds_alternative<core::RankHung>(body) || std::holds_alternative<core::RankSilent>(body) ||
         std::holds_alternative<core::NodeLost>(body);
}

}  // namespace

StackRequests::StackRequests(const Parts& parts, std::function<void(const core::AttemptKey&)> tell,
                             std::function<void(core::JobId)> changed, bool threads)
    : parts_(parts),
      tell_(std::move(tell)),
      keeper_({parts.clock, parts.data,
               [this](const core::AttemptKey& key, std::uint64_t number) {
                 if (!parts_.live_ranks.ask_stacks(key, number)) return false;
                 if (!parts_.executor.ask_stacks(key, number)) return false;
                 tell_(key);
                 return true;
               },
               [this](const core::AttemptKey& key, core::RankNumber rank) { return why_none(key, rank); },
               [changed = std::move(changed)](const core::AttemptKey& key) { changed(key.job); }},
              threads) {}

Outcome<v1::StacksView> StackRequests::get(const v1::StacksRequest& request) {
  try {
    const auto job = parts_.event_log.job(request.job_id());
    if (job == nullptr || job->removed_at) return Refusal::no_job(request.job_id());
    return get_of(*job, request);
  } catch (const std::exception& error) {
    return Refusal::unavailable(error.what());
  }
}

Outcome<v1::StacksView> StackRequests::get_of(const core::Job& job, const v1::StacksRequest& request) {
  const auto name = "job " + std::to_string(job.id);
  if (job.attempts.empty()) {
    return Refusal::wrong_state(name + " is " + status_word(job) +
                                ": it has no attempt yet, and no stacks; ask again when it runs");
  }
  const auto newest = static_cast<core::AttemptNumber>(job.attempts.size());
  const auto number = request.attempt() == 0 ? newest : request.attempt();
  if (number > newest) {
    return Refusal::not_found(name + " has no attempt " + std::to_string(number) + "; its newest is " +
                              std::to_string(newest));
  }
  const core::AttemptKey key{job.id, number};
  if (!request.ask()) return view(key, request.number());
  if (number != newest || !runs(job.attempts.back())) {
    const bool ended = job.attempts[number - 1].state == core::AttemptState::kEnded;
    return Refusal::wrong_state("attempt " + std::to_string(number) + " of " + name +
                                (ended ? " has ended" : " does not run yet") + ", so no rank can give its stack; " +
                                (ended ? "muster stacks " + std::to_string(job.id) + " --attempt " +
                                             std::to_string(number) + " shows what was kept of it"
                                       : "ask again when it runs"));
  }
  const auto user = user_or_unknown(request.user());
  const auto asked = ask(key, "asked", user);
  if (asked == 0) return Refusal::wrong_state(name + " has no agents that can be asked now; ask again when it runs");
  spdlog::info("job {} attempt {}: {} asks for the stacks of its ranks", job.id, number, user);
  return view(key, asked);
}

std::uint64_t StackRequests::ask(const core::AttemptKey& key, const std::string& why, const std::string& user) {
  const auto job = parts_.event_log.job(key.job);
  return job == nullptr ? 0 : keeper_.ask(key, why, user, job->world_size);
}

v1::StacksView StackRequests::view(const core::AttemptKey& key, std::uint64_t number) const {
  v1::StacksView out;
  out.set_job_id(key.job);
  out.set_attempt(key.number);
  const auto sets = keeper_.sets(key);
  for (const auto& set : sets) fill(set, *out.add_sets());
  const auto shown =
      number == 0 && !sets.empty() ? std::prev(sets.end()) : std::ranges::find(sets, number, &stacks::StackSet::number);
  if (shown == sets.end()) return out;
  fill(*shown, *out.mutable_shown());
  std::map<core::RankNumber, stacks::Place> places;
  for (core::RankNumber rank = 0; rank < shown->ranks; ++rank) {
    auto& told = *out.add_ranks();
    told.set_rank(rank);
    if (const auto none = shown->none.find(rank); none != shown->none.end()) told.set_problem(none->second);
    if (shown->over && shown->given.contains(rank)) {
      places.emplace(rank, stacks::place_of(keeper_.text(key, shown->number, rank, kComparedBytes)));
    }
  }
  const auto groups = stacks::compare(places);
  out.set_summary(base::valid_utf8(stacks::summary_of(groups)));
  for (const auto& group : groups) {
    auto& told = *out.add_groups();
    told.mutable_ranks()->Assign(group.ranks.begin(), group.ranks.end());
    told.set_parts_at(base::valid_utf8(group.parts_at));
    told.set_innermost(base::valid_utf8(group.innermost));
  }
  return out;
}

std::string StackRequests::text(const core::AttemptKey& attempt, std::uint64_t number, core::RankNumber rank) {
  try {
    return base::valid_utf8(keeper_.text(attempt, number, rank));
  } catch (const std::exception& error) {
    spdlog::warn("job {} attempt {}: the stack of rank {} can't be read: {}", attempt.job, attempt.number, rank,
                 error.what());
    return "";
  }
}

Outcome<v1::KeepStackResponse> StackRequests::take(const v1::KeepStackRequest& request) {
  if (request.text().size() > agent::protocol::kMostStackBytes) {
    return Refusal::invalid("text has " + std::to_string(request.text().size()) + " bytes; at most " +
                            std::to_string(agent::protocol::kMostStackBytes) + " are taken");
  }
  keeper_.take({request.key().job_id(), request.key().attempt()}, request.number(), request.key().rank(),
               request.text());
  return v1::KeepStackResponse();
}

void StackRequests::suspect(const core::AttemptKey& key) {
  const auto now = parts_.clock.monotonic();
  std::erase_if(suspected_at_, [now](const auto& each) { return now - each.second >= kBetweenSuspicions; });
  if (suspected_at_.emplace(key, now).second) ask(key, "suspected", "");
}

std::vector<ranks::Watched::Fact> StackRequests::before_telling(std::vector<ranks::Watched::Fact> found) {
  const auto now = parts_.clock.monotonic();
  std::vector<ranks::Watched::Fact> told;
  std::map<core::AttemptKey, bool> may;  // the first end of an attempt decides for all of its round
  for (auto& fact : found) {
    const core::AttemptKey key{fact.job, core::attempt_of(fact.body)};
    if (std::holds_alternative<core::AttemptSuspected>(fact.body)) suspect(key);
    if (!waits_for_stacks(fact.body)) {
      told.push_back(std::move(fact));
      continue;
    }
    const auto [place, is_first] = may.try_emplace(key, false);
    if (is_first) place->second = may_tell(key, fact.body, now);
    if (place->second) {
      told.push_back(std::move(fact));
    } else {
      parts_.live_ranks.not_told(key, fact.body);
    }
  }
  call_off(now);
  return told;
}

// No lock is held while others are asked: an executor may be telling us something meanwhile.
bool StackRequests::may_tell(const core::AttemptKey& key, const core::EventBody& end, core::Millis now) {
  std::unique_lock lock(mutex_);
  const auto known = held_.find(key);
  if (known == held_.end()) {
    lock.unlock();
    if (!more_can_come(key, end, {}) || ask(key, "before_end", "") == 0) return true;
    lock.lock();
    held_.emplace(key, Held{end, now + kBeforeEnd, now});
    return false;
  }
  auto& held = known->second;
  held.found_at = now;
  if (held.told != Held::Told::kNot) return held.told == Held::Told::kHere;
  const auto until = held.until;
  lock.unlock();
  const auto given = keeper_.given(key);
  if (now < until && given && more_can_come(key, end, *given)) return false;
  lock.lock();
  // An executor's thread may have told it meanwhile.
  if (const auto still = held_.find(key); still != held_.end()) {
    if (still->second.told == Held::Told::kAsFirstCause) return false;
    still->second.told = Held::Told::kHere;
  }
  return true;
}

// Only those are waited for that somebody can ask: a lost rank would cost its attempt all of kBeforeEnd.
bool StackRequests::more_can_come(const core::AttemptKey& key, const core::EventBody& end,
                                  const std::set<core::RankNumber>& given) const {
  using executors::Vouch;
  const auto job = parts_.event_log.job(key.job);
  if (job == nullptr || key.number == 0 || key.number > job->attempts.size()) return false;
  const auto& ranks = job->attempts[key.number - 1].ranks;
  const bool all_are_heard = std::holds_alternative<core::RankHung>(end);
  for (core::RankNumber rank = 0; rank < job->world_size; ++rank) {
    const bool has_ended = rank < ranks.size() && ranks[rank].state == core::RankState::kExited;
    if (has_ended || given.contains(rank)) continue;
    const auto word = parts_.executor.vouch(key, rank);
    const bool is_lost = word == Vouch::kUnknown || word == Vouch::kNodeAnswers || word == Vouch::kAsking;
    const bool is_gone = word == Vouch::kGone || word == Vouch::kEnded || word == Vouch::kSuspended;
    if (!is_gone && (all_are_heard || !is_lost)) return true;
  }
  return false;
}

void StackRequests::call_off(core::Millis now) {
  std::lock_guard lock(mutex_);
  std::erase_if(held_, [&](const auto& each) {
    const auto& [key, held] = each;
    if (now - held.found_at < kFoundAgain) return false;
    if (held.told == Held::Told::kNot) {
      spdlog::info("job {} attempt {}: what was about to end it is not so any more; it goes on", key.job, key.number);
    }
    return true;
  });
}

std::optional<core::EventBody> StackRequests::first_cause(const core::AttemptKey& key, core::RankNumber failed) {
  std::lock_guard lock(mutex_);
  const auto known = held_.find(key);
  if (known == held_.end() || known->second.told != Held::Told::kNot) return std::nullopt;
  auto& held = known->second;
  const auto* silent = std::get_if<core::RankSilent>(&held.end);
  // The rank's own end says more of the rank itself, and a rank that hangs may wait for the one that has failed.
  const bool is_first = silent != nullptr ? silent->rank != failed : std::holds_alternative<core::NodeLost>(held.end);
  if (!is_first) return std::nullopt;
  held.told = Held::Told::kAsFirstCause;
  return held.end;
}

std::string StackRequests::why_none(const core::AttemptKey& key, core::RankNumber rank) const {
  const auto job = parts_.event_log.job(key.job);
  const auto* attempt = job == nullptr || key.number > job->attempts.size() ? nullptr : &job->attempts[key.number - 1];
  if (attempt == nullptr || attempt->state == core::AttemptState::kEnded) return "the attempt has ended meanwhile";
  if (rank < attempt->ranks.size() && attempt->ranks[rank].state == core::RankState::kExited)
    return "the rank has ended";
  using executors::Vouch;
  const auto word = parts_.executor.vouch(key, rank);
  if (word == Vouch::kGone || word == Vouch::kEnded) return "the rank has ended";
  const auto waited = core::duration_text(stacks::StackKeeper::kPatience);
  if (word == Vouch::kAlive || word == Vouch::kStopped) {
    return "the agent beside it has given none within " + waited +
           ": it is of an earlier muster, or a disk or network holds it up";
  }
  if (word == Vouch::kSuspended) return "the scheduler has suspended it, and the agent beside it";
  return "the agent beside it is not heard; what it gives later is kept";
}

}  // namespace service
