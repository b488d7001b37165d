#include "controller/ranks/liveness.h"

#include <array>
#include <set>
#include <variant>

#include "controller/core/core_text.h"

namespace ranks {
namespace {

std::string word(executors::Vouch vouch) {
  switch (vouch) {
    case executors::Vouch::kAlive:
      return "alive";
    case executors::Vouch::kStopped:
      return "stopped";
    case executors::Vouch::kSuspended:
      return "suspended";
    case executors::Vouch::kEnded:
    case executors::Vouch::kGone:
      return "gone";
    case executors::Vouch::kNodeAnswers:
      return core::kSeenByItsNodeAlone;
    case executors::Vouch::kUnknown:
    case executors::Vouch::kAsking:
      break;
  }
  return "unknown";
}

/// True if the node of the rank has said anything of the process.
bool tells_of_process(executors::Vouch vouch) {
  return vouch != executors::Vouch::kUnknown && vouch != executors::Vouch::kNodeAnswers &&
         vouch != executors::Vouch::kAsking;
}

bool passed(core::Millis limit, core::Millis since, core::Millis now) {
  return limit.count() > 0 && now - since >= limit;
}

}  // namespace

LivenessRules liveness_rules(const muster::v1::JobSpec& spec) {
  const auto& l = spec.liveness();
  LivenessRules rules;
  rules.silent_after = core::Millis(l.silent_after_ms());
  rules.silent_after_vouched = core::Millis(l.silent_after_vouched_ms());
  rules.hung_after = core::Millis(l.hung_after_ms());
  if (l.lost_after_ms() > 0) rules.lost_after = core::Millis(l.lost_after_ms());
  rules.join_within = core::Millis(l.join_within_ms());
  rules.stop_grace = core::Millis(spec.resources().stop_grace_ms());
  rules.time_limit = core::Millis(spec.resources().time_limit_ms());
  rules.heartbeats = spec.has_recipe();
  return rules;
}

void AttemptWatch::came(core::RankNumber rank, core::Millis now) {
  auto& r = ranks_.at(rank);
  go_on(now);
  heard_.reset();
  if (!r.joined) begin_anew(r, now);
  r.joined = true;
  r.heard_at = now;
  r.spoke_at = now;
  r.gone_since.reset();
}

void AttemptWatch::heard(core::RankNumber rank, const Progress& progress, core::Millis now) {
  auto& r = ranks_.at(rank);
  came(rank, now);
  r.told_at = now;
  if (!std::exchange(r.is_known, true)) {
    // The first word is no progress: before it the rank may have stood there for hours.
    begin_anew(r, now);
  } else if (progress.step != r.step || progress.section != r.section) {
    const auto steps = progress.step - r.step;
    const bool leaves = progress.section != r.section;
    // One that stays in its section may have waited for another that was in a section of its own.
    const bool waited = !leaves && last_change_by_other(rank) >= r.progress_at;
    if (r.may_teach && r.moves > 0 && !waited) limits_.learn(r.section, rank, now - r.progress_at, steps);
    if (leaves) note_change(rank, now);
    if (steps > 0) ++r.moves;
    r.may_teach = true;
    r.progress_at = now;
    r.moved_at = now;
  }
  r.step = progress.step;
  r.section = progress.section;
  r.has_steps = r.has_steps || progress.step > 0;
  r.is_done = progress.done;
  if (progress.blind) begin_anew(r, now);
}

void AttemptWatch::follow(const core::Attempt& attempt, core::Millis now) {
  for (std::size_t i = 0; i < ranks_.size() && i < attempt.ranks.size(); ++i) {
    const auto state = attempt.ranks[i].state;
    if (state == core::RankState::kExited) ranks_[i].exited = somebody_left_ = true;
    // Known from before a restart: its silence counts, not its joining.
    if (state == core::RankState::kRunning) ranks_[i].joined = true;
    move_to(static_cast<core::RankNumber>(i), attempt.ranks[i].node);
  }
  if (!std::exchange(is_followed_, true) && attempt.suspicion) {
    inherited_ = attempt.suspicion;
    inherited_at_ = now;
  }
  scheduled_ = attempt.queued_at.has_value();
  const bool queued = attempt.state == core::AttemptState::kQueued;
  if (queued_ && !queued) {
    started_at_ = now;
    fresh_start(now);
  }
  queued_ = queued;
  if (attempt.state == core::AttemptState::kDraining && !draining_) {
    draining_ = true;
    draining_since_ = now;
  }
}

void AttemptWatch::fresh_start(core::Millis now) {
  for (auto& rank : ranks_) {
    rank.heard_at = now;
    begin_anew(rank, now);
    rank.gone_since.reset();
    rank.stopped_since.reset();
  }
}

bool AttemptWatch::misses_somebody(core::Millis now) const {
  return std::ranges::any_of(ranks_, [&](const RankWatch& rank) {
    const bool may_follow = watched(rank) || (watched_by_node(rank) && rank.vouched_at);
    const bool is_coming = watched(rank) && !rank.joined;
    return may_follow && passed(is_coming ? rules_.silent_after : rules_.silent_after / 2, rank.heard_at, now);
  });
}

std::vector<core::RankNumber> AttemptWatch::overdue(core::Millis now) const {
  std::vector<core::RankNumber> out;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const auto& rank = ranks_[i];
    const auto limit = rank.joined ? rules_.silent_after : rules_.join_within;
    const bool ask_node = watched_by_node(rank) && (!rank.asked_at || now - *rank.asked_at >= kAskNodeAgain);
    if (ask_node || (watched(rank) && passed(limit, rank.heard_at, now)))
      out.push_back(static_cast<core::RankNumber>(i));
  }
  if (scheduled_) add_neighbours(out);
  return out;
}

// Their words tell whether the node is there: one that has just ended is unheard, too, and yet vouched for.
void AttemptWatch::add_neighbours(std::vector<core::RankNumber>& overdue) const {
  if (overdue.empty()) return;
  const std::set<core::RankNumber> first(overdue.begin(), overdue.end());
  std::set<std::string_view> nodes;
  for (const auto number : first) nodes.insert(ranks_[number].node);
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const auto number = static_cast<core::RankNumber>(i);
    if (watched(ranks_[i]) && nodes.contains(ranks_[i].node) && !first.contains(number)) overdue.push_back(number);
  }
}

void AttemptWatch::note(core::RankNumber rank, executors::Vouch vouch, core::Millis now) {
  auto& r = ranks_.at(rank);
  if (vouch == executors::Vouch::kSuspended) {
    stand_still(r);
  } else if (tells_of_process(vouch)) {
    go_on(now);
  }
  r.asked_at = now;
  r.word = vouch;
  if (tells_of_process(vouch)) r.vouched_at = now;
  if (vouch == executors::Vouch::kStopped) {
    r.stopped_since = r.stopped_since.value_or(now);
  } else {
    r.stopped_since.reset();
  }
  if (vouch != executors::Vouch::kGone) r.gone_since.reset();
}

std::optional<core::EventBody> AttemptWatch::judge(core::RankNumber rank, executors::Vouch vouch, core::Millis now) {
  auto& r = ranks_.at(rank);
  if (watched_by_node(r)) return judge_by_node(rank, vouch, now);
  const auto first_limit = r.joined ? rules_.silent_after : rules_.join_within;
  if (!watched(r) || !passed(first_limit, r.heard_at, now)) return std::nullopt;  // heard meanwhile
  note(rank, vouch, now);
  switch (vouch) {
    case executors::Vouch::kSuspended:
      r.heard_at = now;
      begin_anew(r, now);
      return std::nullopt;
    case executors::Vouch::kEnded:
      return std::nullopt;
    case executors::Vouch::kGone:
      if (!r.gone_since) r.gone_since = now;
      if (now - *r.gone_since < kGonePatience) return std::nullopt;
      return silent(rank, now - r.heard_at, vouch);
    case executors::Vouch::kStopped:
      return silent(rank, now - r.heard_at, vouch);
    case executors::Vouch::kAlive:
    case executors::Vouch::kUnknown:
    case executors::Vouch::kNodeAnswers:
    case executors::Vouch::kAsking:
      break;
  }
  return judge_unheard(rank, vouch, now);
}

core::RankSilent AttemptWatch::silent(core::RankNumber rank, core::Millis silence, executors::Vouch vouch) {
  ranks_[rank].reported = true;
  return {number_, rank, silence, word(vouch)};
}

std::optional<core::EventBody> AttemptWatch::judge_unheard(core::RankNumber rank, executors::Vouch vouch,
                                                           core::Millis now) {
  if (vouch == executors::Vouch::kAsking || !is_evident(rank, vouch, now)) return std::nullopt;
  const bool says_nothing = vouch == executors::Vouch::kUnknown;
  if (says_nothing && node_is_silent(rank, now)) return lose_node(rank, now);
  return silent(rank, now - ranks_[rank].heard_at, vouch);
}

bool AttemptWatch::is_evident(core::RankNumber number, executors::Vouch vouch, core::Millis now) {
  const auto& rank = ranks_[number];
  const auto heard = who_is_heard(now);
  const auto limit = vouch == executors::Vouch::kUnknown ? rules_.silent_after : rules_.silent_after_vouched;
  if (heard.anybody && heard.all_stand) return passed(limit, rank.heard_at, now);
  return !heard.any_moves && passed(lost_after(rank), rank.heard_at, now);
}

// Once a round, for many ranks may be missed at once. A rank that is missed is not heard, so it is none of these.
AttemptWatch::Heard AttemptWatch::who_is_heard(core::Millis now) {
  if (heard_ && heard_->at == now) return *heard_;
  Heard heard{.at = now};
  const auto ends = limits_now().ends;
  for (const auto& rank : ranks_) {
    const bool is_heard = rank.joined && !passed(rules_.silent_after, rank.heard_at, now);
    if (rank.exited || !tells(rank) || !is_heard) continue;
    heard.anybody = true;
    heard.all_stand = heard.all_stand && passed(ends, rank.progress_at, rank.told_at);
    heard.any_moves = heard.any_moves || !passed(rules_.lost_after, rank.progress_at, now);
  }
  heard_ = heard;
  return heard;
}

std::optional<core::EventBody> AttemptWatch::judge_by_node(core::RankNumber rank, executors::Vouch vouch,
                                                           core::Millis now) {
  auto& r = ranks_.at(rank);
  note(rank, vouch, now);
  if (tells_of_process(vouch)) r.heard_at = now;
  if (vouch == executors::Vouch::kSuspended) begin_anew(r, now);
  const auto stop_limit = scheduled_ && rules_.silent_after > core::Millis(0)
                              ? std::max(rules_.silent_after, kStopIsSure)
                              : rules_.silent_after;
  if (vouch == executors::Vouch::kStopped && passed(stop_limit, *r.stopped_since, now)) {
    return silent(rank, now - *r.stopped_since, vouch);
  }
  const bool missed = scheduled_ && r.vouched_at && passed(rules_.silent_after, r.heard_at, now);
  return missed && node_is_silent(rank, now) ? judge_unheard(rank, vouch, now) : std::nullopt;
}

bool AttemptWatch::node_is_silent(core::RankNumber rank, core::Millis now) const {
  const auto& node = ranks_[rank].node;
  if (!scheduled_ || node.empty()) return false;
  return std::ranges::all_of(by_node_.at(node), [&](core::RankNumber number) {
    const auto& other = ranks_[number];
    const auto last = std::max(other.heard_at, other.vouched_at.value_or(other.heard_at));
    // Its ranks spoke last at different moments of one interval, so half the limit says as much of the others.
    return other.exited || passed(rules_.silent_after / 2, last, now);
  });
}

void AttemptWatch::move_to(core::RankNumber rank, const std::string& node) {
  auto& own = ranks_[rank].node;
  if (node.empty() || own == node) return;
  if (!own.empty()) std::erase(by_node_[own], rank);
  own = node;
  by_node_[node].push_back(rank);
}

std::optional<core::EventBody> AttemptWatch::lost_node(core::Millis now) {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const auto& rank = ranks_[i];
    const auto number = static_cast<core::RankNumber>(i);
    // One that has never been heard may be on its way.
    const bool was_heard = rank.joined || !rules_.heartbeats;
    const bool is_missed = was_heard && is_unheard(rank, rules_.silent_after, now);
    if (!is_missed || rank.word != executors::Vouch::kUnknown || !node_is_silent(number, now)) continue;
    return lose_node(number, now);
  }
  return std::nullopt;
}

core::NodeLost AttemptWatch::lose_node(core::RankNumber rank, core::Millis now) {
  const auto& lost = ranks_[rank];
  for (const auto number : by_node_.at(lost.node)) ranks_[number].reported = true;
  return {number_, lost.node, now - lost.heard_at};
}

// Nothing of it is needed while nothing is suspected, and each heartbeat waits for this.
std::vector<core::EventBody> AttemptWatch::ends_by_hang(core::Millis now) {
  if (!suspected_) return {};
  const auto [usual, learned_in, limit] = limits_now();
  const bool is_set = rules_.hung_after.count() > 0;
  // The user's word on steps holds whatever comes out.
  if (now - suspected_at_ < limit / 2 || !(is_set || passed(limit, came_out_at_, now))) return {};
  // That a rank is silent says more than that the others wait for it, so that word comes first.
  const bool is_missed =
      std::ranges::any_of(ranks_, [&](const auto& rank) { return is_unheard(rank, rules_.silent_after, now); });
  const auto patience = std::max(rules_.silent_after, rules_.silent_after_vouched);
  const auto found = hung(is_missed ? limit + patience : limit, now);
  std::vector<core::EventBody> out;
  for (const auto number : found) {
    auto& rank = ranks_[number];
    rank.reported = true;
    out.emplace_back(core::RankHung{.attempt = number_,
                                    .rank = number,
                                    .section = rank.section,
                                    .no_progress_for = now - rank.progress_at,
                                    .limit = limit,
                                    .learned_from = is_set ? 0 : usual.learned_from,
                                    .only_one_reports = only_one_reports(),
                                    .usual = usual.learned_from > 0 && !is_set ? usual.time : core::Millis(0),
                                    .source = source_of(usual),
                                    .learned_in = learned_in == rank.section ? "" : learned_in});
  }
  if (!found.empty() && !is_set) {
    const auto& first = ranks_[found.front()];
    before_hang_ = {first.section, limits_.after_hang(first.section)};
    limits_.note_hang(first.section, now - first.progress_at);
  }
  return out;
}

std::vector<core::EventBody> AttemptWatch::findings(core::Millis now) {
  auto out = ends_by_hang(now);
  if (!draining_ && !queued_ && !time_limit_told_ &&
      passed(save_at(), started_at_ + stood_still_, still_since_.value_or(now))) {
    time_limit_told_ = true;
    out.emplace_back(core::TimeLimitReached{number_});
  }
  return out;
}

void AttemptWatch::not_told(const core::EventBody& end) {
  if (const auto* hung = std::get_if<core::RankHung>(&end)) {
    ranks_.at(hung->rank).reported = false;
    if (before_hang_.first.empty()) return;
    limits_.forget_hang(before_hang_.first, before_hang_.second);
    before_hang_ = {};
  } else if (const auto* silent = std::get_if<core::RankSilent>(&end)) {
    ranks_.at(silent->rank).reported = false;
  } else if (const auto* lost = std::get_if<core::NodeLost>(&end)) {
    const auto there = by_node_.find(lost->node);
    if (there == by_node_.end()) return;
    for (const auto number : there->second) ranks_[number].reported = false;
  }
}

// The rank that is behind the others comes first: they wait for it.
std::vector<core::RankNumber> AttemptWatch::hung(core::Millis limit, core::Millis now) const {
  std::vector<core::RankNumber> found;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (hangs(ranks_[i], limit, now)) found.push_back(static_cast<core::RankNumber>(i));
  }
  std::ranges::stable_sort(
      found, {}, [&](core::RankNumber rank) { return std::pair(ranks_[rank].step, ranks_[rank].progress_at); });
  return found;
}

std::optional<core::EventBody> AttemptWatch::suspicion(core::Millis now, core::Millis heard_until) {
  if (draining_ || queued_) {
    suspected_.reset();
    inherited_.reset();
    return std::nullopt;
  }
  if (inherited_) return judge_inherited(now, heard_until);
  if (!suspected_) return suspect(now, heard_until);
  if (is_refuted(suspected_->of, doubted_, suspected_at_)) {
    const core::SuspicionOver over{number_, suspected_->of, now - suspected_at_ + suspected_->lasts};
    suspected_.reset();
    return over;
  }
  // The others stand, and now it shows for whom they wait.
  return looks_hung() ? tell(suspect_unheard(heard_until), now) : std::nullopt;
}

std::optional<core::EventBody> AttemptWatch::tell(const std::optional<core::AttemptSuspected>& suspected,
                                                  core::Millis now) {
  if (!suspected) return std::nullopt;
  suspected_ = suspected;
  suspected_at_ = now;
  inherited_.reset();
  return *suspected_;
}

std::optional<core::EventBody> AttemptWatch::judge_inherited(core::Millis now, core::Millis heard_until) {
  if (auto anew = suspect(now, heard_until)) return anew;
  const bool is_of_hang = *inherited_ == core::Suspicion::kHung;
  std::vector<core::RankNumber> all;
  bool anybody_tells = false;
  for (core::RankNumber rank = 0; rank < world_size(); ++rank) {
    const bool it_tells = tells(ranks_[rank]);
    anybody_tells = anybody_tells || it_tells;
    // A rank that has made its last step goes on no more.
    if (!is_of_hang || (it_tells && !ranks_[rank].is_done)) all.push_back(rank);
  }
  const bool may_be_judged = anybody_tells || !is_of_hang;
  if (!may_be_judged || !is_refuted(*inherited_, all, inherited_at_)) return std::nullopt;
  const core::SuspicionOver over{number_, *inherited_, core::Millis(0)};
  inherited_.reset();
  return over;
}

std::optional<core::AttemptSuspected> AttemptWatch::suspect_unheard(core::Millis heard_until) {
  std::vector<core::RankNumber> unheard;
  for (core::RankNumber rank = 0; rank < world_size(); ++rank) {
    if (is_unheard(ranks_[rank], suspected_after(ranks_[rank]), heard_until)) unheard.push_back(rank);
  }
  if (unheard.empty()) return std::nullopt;
  const auto first =
      *std::ranges::min_element(unheard, {}, [&](core::RankNumber rank) { return ranks_[rank].heard_at; });
  const auto& node = ranks_[first].node;
  const auto is_there = [&](core::RankNumber rank) { return !ranks_[rank].exited; };
  const bool is_one_node =
      scheduled_ && !node.empty() &&
      std::ranges::all_of(unheard, [&](core::RankNumber rank) { return ranks_[rank].node == node; }) &&
      static_cast<std::size_t>(std::ranges::count_if(by_node_.at(node), is_there)) == unheard.size();
  core::AttemptSuspected out{.attempt = number_, .of = core::Suspicion::kUnheard, .first_rank = first};
  out.ranks = static_cast<std::uint32_t>(unheard.size());
  if (is_one_node) out.node = node;
  out.section = ranks_[first].section;
  out.lasts = heard_until - ranks_[first].heard_at;
  out.ends_after = lost_after(ranks_[first]);
  if (who_is_heard(heard_until).anybody) out.stands_after = limits_now().ends;
  doubted_ = std::move(unheard);
  return out;
}

std::optional<core::AttemptSuspected> AttemptWatch::suspect_hung(core::Millis now) {
  const auto [usual, learned_in, ends_after] = limits_now();
  const auto limit = std::min(usual.time, ends_after / 2);
  const auto found = hung(limit, now);
  if (found.empty()) return std::nullopt;
  doubted_ = {found.front()};
  const auto& rank = ranks_[found.front()];
  core::AttemptSuspected out{.attempt = number_, .of = core::Suspicion::kHung, .first_rank = found.front()};
  out.section = rank.section;
  out.lasts = now - rank.progress_at;
  out.limit = limit;
  out.ends_after = ends_after;
  out.learned_from = limit == usual.time ? usual.learned_from : 0;
  out.only_one_reports = only_one_reports();
  out.source = source_of(usual);
  if (learned_in != rank.section) out.learned_in = learned_in;
  return out;
}

bool AttemptWatch::is_unheard(const RankWatch& rank, core::Millis limit, core::Millis now) const {
  const bool is_missed = watched(rank) || (watched_by_node(rank) && scheduled_ && rank.vouched_at);
  return is_missed && passed(limit, rank.heard_at, now);
}

// Fresh time after a deaf moment refutes nothing: what counts is a word that came after the suspicion.
bool AttemptWatch::is_refuted(core::Suspicion of, const std::vector<core::RankNumber>& ranks,
                              core::Millis since) const {
  return std::ranges::all_of(ranks, [&](core::RankNumber number) {
    const auto& rank = ranks_[number];
    if (rank.exited) return true;
    if (of == core::Suspicion::kHung) return rank.moved_at > since;
    const auto vouched_at = rules_.heartbeats ? core::Millis{-1} : rank.vouched_at.value_or(core::Millis{-1});
    return std::max(rank.spoke_at, vouched_at) > since;
  });
}

core::Millis AttemptWatch::end_limit(const std::string& section, const HangLimit& usual) const {
  if (rules_.hung_after.count() > 0) return rules_.hung_after;
  const auto limit = usual.learned_from > 0 ? kEndFactor * usual.time : usual.time;
  const auto least = rules_.heartbeats ? kRecipeEndsAtLeast : kProgramEndsAtLeast;
  return std::max({limit, least, limits_.after_hang(section)});
}

HangLimit AttemptWatch::own_limit(const RankWatch& rank) const {
  constexpr std::uint64_t kFirstMoves = 2;
  if (rank.moves < kFirstMoves) return {HangLimits::kGenerous, 0};
  return limits_.of(rank.section);
}

AttemptWatch::Limits AttemptWatch::limits_now() const {
  Limits longest;
  const RankWatch* last = nullptr;
  for (const auto& rank : ranks_) {
    if (rank.exited || !rank.joined || !(tells(rank) || rank.section != "init")) continue;
    if (last != nullptr && last->section == rank.section && std::min(last->moves, rank.moves) > 1) continue;
    last = &rank;
    const auto own = own_limit(rank);
    if (own.time > longest.usual.time) {
      longest.usual = own;
      longest.section = rank.section;
    }
    longest.ends = std::max(longest.ends, end_limit(rank.section, own));
  }
  return longest;
}

// The rank's own word that nothing has moved is what counts. From the rank's silence follows nothing here.
bool AttemptWatch::hangs(const RankWatch& rank, core::Millis limit, core::Millis now) const {
  if (!may_hang(rank) || !passed(limit, rank.progress_at, rank.told_at)) return false;
  // One that is not heard either is silent, which says more.
  return !rules_.heartbeats || !passed(rules_.silent_after, rank.heard_at, now);
}

std::optional<LeastProgress> AttemptWatch::least_progress(core::Millis now) const {
  std::optional<LeastProgress> least;
  double most = -1;
  const bool is_set = rules_.hung_after.count() > 0;
  const auto [usual, learned_in, ends_after] = limits_now();
  const HangLimit limit = is_set ? HangLimit{ends_after, 0} : usual;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const auto& rank = ranks_[i];
    if (!may_hang(rank)) continue;
    const auto part = static_cast<double>((now - rank.progress_at).count()) / static_cast<double>(limit.time.count());
    if (part <= most) continue;
    most = part;
    least = LeastProgress{.rank = static_cast<core::RankNumber>(i),
                          .section = rank.section,
                          .limit = limit,
                          .is_set = is_set,
                          .limit_section = is_set ? rank.section : learned_in,
                          .ends_after = ends_after,
                          .since = rank.progress_at};
  }
  return least;
}

// It was last heard before it was suspended.
void AttemptWatch::stand_still(const RankWatch& rank) {
  if (!still_since_) still_since_ = std::max(rank.heard_at, went_on_at_);
}

void AttemptWatch::go_on(core::Millis now) {
  if (!still_since_) return;
  stood_still_ += now - *still_since_;
  still_since_.reset();
  went_on_at_ = now;
}

bool AttemptWatch::must_stop_again(core::Millis now) {
  if (!draining_ || now - draining_since_ < rules_.stop_grace + kStopAgainAfter) return false;
  draining_since_ = now;
  return true;
}

std::string section_name(int section, const std::string& own_name) {
  static constexpr std::array kNames = {"init", "data", "step", "checkpoint", "done"};
  if (!own_name.empty()) return own_name;
  return section >= 0 && section < static_cast<int>(kNames.size()) ? kNames[static_cast<std::size_t>(section)]
                                                                   : "unknown";
}

}  // namespace ranks
