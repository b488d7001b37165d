#include "controller/core/requeue_policy.h"

#include <algorithm>
#include <array>
#include <string>

#include "controller/core/core_text.h"

namespace core {
namespace {

using Policy = RequeuePolicy;

constexpr CauseRule kRules[]{
    {.cause = Cause::kNone},
    {.cause = Cause::kCompleted},
    {.cause = Cause::kFailed, .budget = &Policy::max_failed, .stopped = Stopped::kOtherRanks},
    {.cause = Cause::kRankSilent,
     .budget = &Policy::max_rank_silent,
     .noun = "silence",
     .verb = "fell silent",
     .stopped = Stopped::kEveryRank},
    {.cause = Cause::kRankHung,
     .budget = &Policy::max_rank_hung,
     .noun = "hang",
     .verb = "hung",
     .stopped = Stopped::kEveryRank},
    {.cause = Cause::kCancelled, .stopped = Stopped::kEveryRank, .leaves_with_save = true},
    {.cause = Cause::kPreempted,
     .budget = &Policy::max_preempted,
     .noun = "preemption",
     .verb = "was preempted",
     .backoff = Backoff::kNever,
     .leaves_with_save = true},
    // A long training reaches its time limit many times.
    {.cause = Cause::kTimedOut,
     .budget = &Policy::max_timed_out,
     .noun = "time limit",
     .verb = "reached the time limit",
     .backoff = Backoff::kUnlessSaved,
     .leaves_with_save = true},
    // The next attempt avoids the lost node, so there is nothing to wait for.
    {.cause = Cause::kNodeFailed,
     .budget = &Policy::max_node_failed,
     .noun = "lost node",
     .verb = "lost a node",
     .backoff = Backoff::kNever},
    {.cause = Cause::kOutOfMemory,
     .budget = &Policy::max_out_of_memory,
     .noun = "lack of memory",
     .verb = "ran out of memory",
     .stopped = Stopped::kOtherRanks},
    {.cause = Cause::kControllerLost,
     .budget = &Policy::max_controller_lost,
     .noun = "loss",
     .verb = "was lost or could not be started"},
    {.cause = Cause::kRequeued,
     .backoff = Backoff::kUnlessSaved,
     .stopped = Stopped::kEveryRank,
     .leaves_with_save = true},
};
static_assert(std::ranges::equal(kRules, all_of<Cause>(), {}, &CauseRule::cause));

bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool is_pid(std::string_view word) {
  return word == "pid" || word == "PID" || word == "Pid" || word == "port" || word == "Port";
}
bool is_process(std::string_view word) {
  return word == "pids" || word == "ports" || word == "process" || word == "Process" || word == "processes";
}

/// Replaces every word of at least four characters that has a digit ("0x7f3a", "48213", "tmp8d_x1") by "#". Replaces a
/// shorter number after "pid" or "port" too: process ids in a container are short. With `in_lists` also those of a
/// list,
/// "(pid(s) 27, 31)", and after "process".
std::string without_numbers(std::string_view text, bool in_lists) {
  constexpr std::size_t kShortest = 4;
  std::string result;
  bool after_pid = false;
  while (!text.empty()) {
    const auto end = std::ranges::find_if_not(text, is_word);
    const auto word = text.substr(0, static_cast<std::size_t>(end - text.begin()));
    const bool long_enough = word.size() >= kShortest || after_pid;
    const bool number = long_enough && word.find_first_of("0123456789") != std::string_view::npos;
    result += number ? "#" : std::string(word);
    const bool goes_on = in_lists && after_pid && (number || word == "s");
    if (!word.empty()) after_pid = goes_on || is_pid(word) || (in_lists && is_process(word));
    text.remove_prefix(word.size());
    if (text.empty()) break;
    result += text.front();
    text.remove_prefix(1);
  }
  return result;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
std::size_t digits_at(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && is_digit(text[end])) ++end;
  return end - at;
}

/// The length of "10.0.0.7"; 0: none begins here.
std::size_t ipv4_at(std::string_view text, std::size_t at) {
  std::size_t end = at;
  for (int part = 0; part < 4; ++part) {
    if (part > 0 && (end >= text.size() || text[end++] != '.')) return 0;
    const auto digits = digits_at(text, end);
    if (digits == 0 || digits > 3) return 0;
    end += digits;
  }
  return end < text.size() && is_word(text[end]) ? 0 : end - at;
}

/// The length of "[::ffff:10.0.0.7]", "[fe80::1%eth0]"; 0: none begins here.
std::size_t ipv6_at(std::string_view text, std::size_t at) {
  const auto close = text.find(']', at);
  if (text[at] != '[' || close == std::string_view::npos) return 0;
  const auto inside = text.substr(at + 1, close - at - 1);
  const auto address = inside.substr(0, inside.find('%'));
  const auto fits = [](char c) {
    return std::string_view("0123456789abcdefABCDEF:.").find(c) != std::string_view::npos;
  };
  return std::ranges::count(address, ':') >= 2 && std::ranges::all_of(address, fits) ? close + 1 - at : 0;
}

/// Replaces addresses of IP by "#", also in brackets, with the port behind them.
std::string without_addresses(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    auto size = ipv6_at(text, at);
    if (size == 0 && (at == 0 || !is_word(text[at - 1]))) size = ipv4_at(text, at);
    if (size == 0) {
      result += text[at++];
      continue;
    }
    at += size;
    result += '#';
    const auto port = at + (text.substr(at).starts_with("]:") ? 2 : text.substr(at).starts_with(":") ? 1 : 0);
    if (const auto digits = digits_at(text, port); port > at && digits > 0) at = port + digits;
  }
  return result;
}

/// The length of "07:00:11", "07:00:11.250"; 0: no time of day begins here.
std::size_t clock_at(std::string_view text, std::size_t at) {
  std::size_t end = at;
  for (int part = 0; part < 3; ++part) {
    if (part > 0 && (end >= text.size() || text[end++] != ':')) return 0;  // "x[1:20]" is no time
    const auto digits = digits_at(text, end);
    if (digits == 0 || digits > 2 || (part > 0 && digits != 2)) return 0;
    end += digits;
  }
  if (end < text.size() && (text[end] == '.' || text[end] == ',')) {
    if (const auto digits = digits_at(text, end + 1); digits > 0) end += 1 + digits;
  }
  return end < text.size() && is_word(text[end]) && text[end] != 'Z' ? 0 : end - at;
}

/// The length of "2026-11-28"; 0: no date begins here. A time may be joined to it by "_" or "T".
std::size_t date_at(std::string_view text, std::size_t at) {
  if (digits_at(text, at) != 4 || at + 10 > text.size() || digits_at(text, at + 5) != 2) return 0;
  const char between = text[at + 4];
  if ((between != '-' && between != '/') || text[at + 7] != between || digits_at(text, at + 8) != 2) return 0;
  return 10;
}

/// The length of the number in "62.3 s", "12ms", "5 minutes"; 0: no duration begins here.
std::size_t duration_at(std::string_view text, std::size_t at) {
  constexpr std::array<std::string_view, 19> kUnits{
      "s",           "sec",          "secs", "second", "seconds", "ms",   "msec",
      "millisecond", "milliseconds", "us",   "ns",     "minute",  "mins", "min",
      "minutes",     "hour",         "h",    "hours",  "m"};
  auto end = at + digits_at(text, at);
  if (end < text.size() && text[end] == '.') end += 1 + digits_at(text, end + 1);
  const auto number = end - at;
  if (end < text.size() && text[end] == ' ') ++end;
  const auto rest = text.substr(end);
  const auto unit = rest.substr(0, static_cast<std::size_t>(std::ranges::find_if_not(rest, is_word) - rest.begin()));
  return std::ranges::find(kUnits, unit) != kUnits.end() ? number : 0;
}

/// Replaces times of day, dates and durations by "#".
std::string without_times(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t size = 0;
    const bool joined = at > 0 && is_word(text[at - 1]) && !(text[at - 1] == '_' || text[at - 1] == 'T');
    const bool in_number = at > 1 && text[at - 1] == '.' && is_digit(text[at - 2]);
    if (is_digit(text[at]) && !joined && !in_number) {
      size = date_at(text, at);
      if (size == 0) size = clock_at(text, at);
      if (size == 0) size = duration_at(text, at);
    }
    if (size == 0) {
      result += text[at++];
      continue;
    }
    result += '#';
    at += size;
  }
  return result;
}

/// A rank failed with a sure error, and the attempt is known to have saved nothing.
bool failed_in_vain(const Job& job, const Attempt& attempt) {
  return attempt.cause == Cause::kFailed && is_surely_an_error(attempt.error) && attempt.started_at &&
         !job.saved_anew && job.unseen_progress.empty();
}

}  // namespace

const CauseRule& rule_of(Cause cause) {
  return kRules[static_cast<std::size_t>(cause)];
}

bool leaves_with_save(Cause cause) {
  return rule_of(cause).leaves_with_save;
}

Cause cause_of_exit(const ExitStatus& exit, bool out_of_memory) {
  if (out_of_memory) return Cause::kOutOfMemory;
  if (exit.signal != 0) return Cause::kFailed;
  switch (exit.code) {
    case 0:
      return Cause::kCompleted;
    case kExitOutOfMemory:
      return Cause::kOutOfMemory;
    case kExitRequeue:
      return Cause::kPreempted;
    case kExitFenced:
      return Cause::kControllerLost;
    default:
      return Cause::kFailed;
  }
}

std::optional<std::uint32_t> budget(const RequeuePolicy& policy, Cause cause) {
  const auto member = rule_of(cause).budget;
  return member == nullptr ? std::nullopt : std::optional(policy.*member);
}

bool has_backoff(Cause cause, bool saved_anew) {
  const Backoff rule = rule_of(cause).backoff;
  return rule == Backoff::kAlways || (rule == Backoff::kUnlessSaved && !saved_anew);
}

bool is_hasty(const Attempt& attempt, bool saved_anew, std::uint32_t in_a_row, Time ended_at) {
  if (saved_anew) return false;
  const bool ran = attempt.started_at && ended_at - *attempt.started_at >= kHasty;
  if (attempt.cause == Cause::kNodeFailed) return in_a_row > 1 && !ran;
  return attempt.cause == Cause::kPreempted && attempt.culprit_exit && attempt.started_at && !ran;
}

bool is_quick_failure(const Job& job, const Attempt& attempt, Time ended_at) {
  if (!failed_in_vain(job, attempt)) return false;
  if (ended_at - *attempt.started_at < kQuick || failed_while_starting(job, attempt)) return true;
  return attempt.newest_step == 0 && !ran_healthily(job.policy, attempt, ended_at);
}

bool failed_while_starting(const Job& job, const Attempt& attempt) {
  return (job.reports() || job.tells_steps) && attempt.newest_step == 0 && attempt.cause == Cause::kFailed &&
         is_surely_an_error(attempt.error);
}

bool may_be_a_long_start(const Job& job, const Attempt& attempt, Time ended_at) {
  if (job.error_rules == 0 || job.reports() || job.tells_steps) return false;
  if (!failed_in_vain(job, attempt) || attempt.newest_step != 0) return false;
  return ran_healthily(job.policy, attempt, ended_at) && ended_at - *attempt.started_at <= kLongestStart;
}

bool took_as_long(Millis a, Millis b) {
  return std::max(a, b) - std::min(a, b) <= std::max(a, b) / 10;
}

bool same_error(std::string_view a, std::string_view b, std::uint32_t rules, Step attempt_step) {
  const auto plain = [&](std::string_view error) {
    if (attempt_step < 0) return without_numbers(error, false);
    if (rules == 0) return without_numbers(without_addresses(error), false);
    return without_numbers(without_times(without_addresses(error)), true);
  };
  return plain(a) == plain(b);
}

FilesWorth worth_of_files(const RequeuePolicy& policy, const Attempt& attempt, const CheckpointFolderSeen& seen,
                          Time at) {
  if (seen.fresh == 0) return FilesWorth::kNothing;
  // An earlier muster stored this event. By its rule all new files were progress, and replay must give the same job.
  if (seen.new_names < 0) return FilesWorth::kProgress;
  const Millis enough = policy.healthy_after > Millis{0} ? std::min(kQuick, policy.healthy_after) : kQuick;
  if (attempt.started_at && at - *attempt.started_at >= enough) return FilesWorth::kProgress;
  return seen.new_names > 0 ? FilesWorth::kBudgets : FilesWorth::kNothing;
}

Millis backoff(const RequeuePolicy& policy, std::uint32_t unhealthy_ends) {
  if (unhealthy_ends == 0) return Millis{0};
  Millis wait = std::max(policy.backoff_initial, Millis{0});
  // The loop stops at the cap, so it neither overflows nor takes long.
  for (std::uint32_t doubling = 1; doubling < unhealthy_ends && wait.count() > 0 && wait < policy.backoff_max;
       ++doubling) {
    wait = wait > policy.backoff_max / 2 ? policy.backoff_max : wait * 2;
  }
  return std::max(Millis{0}, std::min(wait, policy.backoff_max));
}

bool ran_healthily(const RequeuePolicy& policy, const Attempt& attempt, Time at) {
  if (!attempt.running_at || policy.healthy_after <= Millis{0}) return false;
  return at - *attempt.running_at >= policy.healthy_after;
}

}  // namespace core
