#include "controller/core/core_text.h"

#include <array>
#include <cstring>
#include <ctime>

#include "base/words.h"
#include "controller/core/requeue_policy.h"

namespace core {

std::string plain_words(std::string_view text) {
  std::string result;
  for (const char c : base::valid_utf8(text)) {
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
    if ((control || c == ' ') && (result.empty() || result.back() == ' ')) continue;
    result += control ? ' ' : c;
  }
  while (!result.empty() && result.back() == ' ') result.pop_back();
  if (result.size() <= kMaxWordsBytes) return result;
  std::size_t end = kMaxWordsBytes - 3;  // room for "..."
  while (end > 0 && (static_cast<unsigned char>(result[end]) & 0xC0) == 0x80) --end;
  return result.substr(0, end) + "...";
}

std::string duration_text(Millis duration) {
  const std::int64_t ms = duration.count();
  if (ms < 1000) return std::to_string(ms) + " ms";
  const std::int64_t seconds = ms / 1000;
  if (seconds < 60) {
    const std::int64_t tenths = (ms % 1000) / 100;
    return std::to_string(seconds) + (tenths != 0 && seconds < 10 ? "." + std::to_string(tenths) : "") + " s";
  }
  const std::int64_t minutes = seconds / 60;
  if (minutes < 60) {
    return std::to_string(minutes) + " min" + (seconds % 60 != 0 ? " " + std::to_string(seconds % 60) + " s" : "");
  }
  return std::to_string(minutes / 60) + " h" + (minutes % 60 != 0 ? " " + std::to_string(minutes % 60) + " min" : "");
}

std::string signal_text(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? "signal " + std::to_string(signal) : "SIG" + std::string(name);
}

std::string person(std::string_view user) {
  std::string words = plain_words(user);
  return words.empty() ? "someone" : words;
}

std::string attempt_text(AttemptNumber number) {
  return "attempt " + std::to_string(number);
}

std::string exit_text(const RankExited& event) {
  std::string text = "rank " + std::to_string(event.rank);
  const std::string code = std::to_string(event.exit.code);
  const bool exited = event.exit.signal == 0;
  const std::string how = exited ? "exited with " + code : "killed by " + signal_text(event.exit.signal);
  if (cause_of_exit(event.exit, event.out_of_memory) == Cause::kOutOfMemory) {
    text += " ran out of memory (" + how + ")";
  } else if (exited && event.exit.code == kExitNeverRequeue) {
    text += " exited with " + code + " (trying again cannot help)";
  } else if (exited && event.exit.code == kExitRequeue) {
    text += " was asked to leave, saved and exited with " + code;
  } else if (exited && event.exit.code == kExitFenced) {
    text += " exited with " + code + " (it was told that its attempt was over)";
  } else {
    text += " " + how;
  }
  const std::string words = plain_words(event.last_words.empty() ? event.error : event.last_words);
  if (words.empty()) return text;
  return text + (is_surely_an_error(words) ? ": " : ", ") + words;
}

std::string failed_text(const RankExited& event) {
  return "rank " + std::to_string(event.rank) + " failed: " + plain_words(event.error);
}

bool is_surely_an_error(std::string_view error) {
  return !error.empty() && !error.starts_with(kLastLine) && !error.starts_with(kLogged);
}

std::string silent_text(const RankSilent& event) {
  std::string text = "rank " + std::to_string(event.rank) + " silent for " + duration_text(event.silent_for);
  const std::string seen = plain_words(event.seen);
  if (seen == kSeenByItsNodeAlone) return text + ", and so is its muster-agent; the node answers";
  if (!seen.empty() && seen != "unknown") text += " (its process is " + seen + ")";
  return text;
}

namespace {

std::string in_section(std::string_view section) {
  const std::string words = plain_words(section);
  return words.empty() ? words : " in section " + words;
}

/// Whose progress is missed. Nothing is known of ranks that do not report, so nothing is said of them.
std::string who_stands(RankNumber number, bool only_one_reports) {
  const std::string rank = "rank " + std::to_string(number);
  return only_one_reports ? "no rank is known to go on; only " + rank + " reports, and it" : rank;
}

/// "node n2", "rank 3", "4 ranks".
std::string who_is_unheard(const AttemptSuspected& event) {
  const std::string node = plain_words(event.node);
  if (!node.empty()) return "node " + node;
  return event.ranks > 1 ? std::to_string(event.ranks) + " ranks" : "rank " + std::to_string(event.first_rank);
}

/// "learned from 200 steps", "learned from 21 stays in section evaluate". The section is named where it is not the
/// rank's.
template <typename Event>
std::string learned_text(const Event& event) {
  const auto& section = event.learned_in.empty() ? event.section : event.learned_in;
  return "learned from " + lessons_text(event.learned_from, section) + in_section(event.learned_in);
}

template <typename Event>
std::string not_learned_text(const Event& event) {
  return "what is usual" + (event.learned_in.empty() ? " there" : in_section(event.learned_in)) + " is not learned yet";
}

}  // namespace

std::string hung_text(const RankHung& event) {
  const std::string text = who_stands(event.rank, event.only_one_reports) + " made no progress for " +
                           duration_text(event.no_progress_for) + in_section(event.section);
  switch (event.source) {
    case LimitSource::kUser:
      return text + "; liveness.hung_after is " + duration_text(event.limit);
    case LimitSource::kLearned:
      return text + ", and nothing came out; usual is at most " + duration_text(event.usual) + ", " +
             learned_text(event);
    case LimitSource::kNotLearnedYet:
      return text + ", and nothing came out; " + not_learned_text(event);
    case LimitSource::kNotTold:
      break;
  }
  if (event.learned_from == 0) return text;
  return text + "; its limit is " + duration_text(event.limit) + ", " + learned_text(event);
}

std::string suspected_text(const AttemptSuspected& event, std::optional<Time> at) {
  const std::string lasts = at ? "since " + utc_text(*at - event.lasts) : "for " + duration_text(event.lasts);
  const std::string ends = "; the attempt goes on, and ends after " + duration_text(event.ends_after);
  if (event.of == Suspicion::kUnheard) {
    const bool one = !event.node.empty() || event.ranks == 1;
    std::string text = who_is_unheard(event) + (one ? " has" : " have") + " not been heard " + lasts + ends +
                       " of it unless another rank makes progress";
    if (event.stands_after.count() == 0 || event.stands_after >= event.ends_after) return text;
    return text + ", or when all ranks that are heard have stood still for " + duration_text(event.stands_after);
  }
  std::string text = who_stands(event.first_rank, event.only_one_reports) + " has made no progress " + lasts +
                     in_section(event.section);
  if (event.learned_from > 0) {
    text += ", longer than the usual " + duration_text(event.limit) + " (" + learned_text(event) + ")";
  }
  if (event.source == LimitSource::kNotLearnedYet) text += ", and " + not_learned_text(event);
  // The user's word holds whatever comes out.
  if (event.source == LimitSource::kUser) return text + ends + " without progress, as liveness.hung_after says";
  return text + ends + " without progress and output";
}

std::string suspicion_over_text(const SuspicionOver& event) {
  const std::string text = event.of == Suspicion::kHung ? "there is progress again" : "all ranks are heard again";
  return event.after.count() == 0 ? text : text + ", after " + duration_text(event.after);
}

std::string node_lost_text(const NodeLost& event) {
  if (!event.why.empty()) return "node " + plain_words(event.node) + " is unfit: " + plain_words(event.why);
  return "node " + plain_words(event.node) + " lost: nothing on it was heard for " + duration_text(event.silent_for);
}

std::string utc_text(Time time) {
  const auto seconds =
      static_cast<std::time_t>(std::chrono::floor<std::chrono::seconds>(time).time_since_epoch().count());
  std::tm parts{};
  std::array<char, 40> text{};
  if (::gmtime_r(&seconds, &parts) == nullptr) return {};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts)};
}

std::string saved_text(const CheckpointSaved& event, Time at) {
  constexpr Millis kAtOnce{2000};
  const auto apart = at.time_since_epoch() - event.saved_at;
  if (event.saved_at.count() <= 0 || (apart > -kAtOnce && apart < kAtOnce)) return {};
  const auto when = utc_text(Time(event.saved_at));
  return when.empty() ? when : ", at " + when + " by the rank's clock";
}

std::string starts_at_text(const Job& job, Millis wait) {
  const bool later = job.may_start() && wait > Millis{0} && job.next_attempt_at;
  return later ? "starts at " + utc_text(*job.next_attempt_at) : starts_text(job, wait);
}

std::string starts_text(const Job& job, Millis wait) {
  if (!job.may_start()) return "starts later: " + what_it_waits_for(job);
  return wait > Millis{0} ? "starts in " + duration_text(wait) : "starts now";
}

std::string what_it_waits_for(const Job& job) {
  std::string text;
  if (job.held) text = "held by " + job.held_by + " until released";
  for (const Dependency& dependency : job.after) {
    if (dependency.met) continue;
    const std::string_view verb = dependency.on == DependsOn::kSucceeded ? "succeed"
                                  : dependency.on == DependsOn::kFailed  ? "fail"
                                                                         : "end";
    text +=
        (text.empty() ? "" : "; ") + ("waiting for job " + std::to_string(dependency.job)) + " to " + std::string(verb);
  }
  return text;
}

std::string drain_text(const Drain& drain) {
  return "drained by " + drain.user + " since " + utc_text(drain.since) +
         (drain.reason.empty() ? "" : ": " + drain.reason);
}

std::string times_text(std::uint32_t count) {
  return count == 1 ? "once" : std::to_string(count) + " times";
}

std::string lessons_text(std::size_t count, std::string_view section) {
  return count_text(count, section == "step" ? "step" : "stay");
}

std::string error_text(const std::string& type, const std::string& message) {
  return type + (type.empty() || message.empty() ? "" : ": ") + message;
}

std::string count_text(std::size_t count, std::string_view singular) {
  return std::to_string(count) + " " + std::string(singular) + (count == 1 ? "" : "s");
}

}  // namespace core
