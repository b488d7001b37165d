#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "controller/core/event.h"

namespace core {

/// The longest quote in a sentence, in bytes. Longer words from outside (a rank's last words, a user's name) are cut.
inline constexpr std::size_t kMaxWordsBytes = 400;

/// Words from outside made fit for a sentence: valid UTF-8, one line, trimmed, at most kMaxWordsBytes.
std::string plain_words(std::string_view text);

/// The words for a person whose name comes from outside: "anna", "someone" for an empty name.
std::string person(std::string_view user);
/// "attempt 2".
std::string attempt_text(AttemptNumber number);
/// "250 ms", "1 s", "1.5 s", "12 min", "2 h 5 min".
std::string duration_text(Millis duration);
/// "SIGKILL"; "signal 99" for a number without a name.
std::string signal_text(int signal);

/// "rank 1 killed by SIGKILL", "rank 0 exited with 3: no such file data.bin". The text quotes the rank's last words, or
/// the program's error if the rank left none.
std::string exit_text(const RankExited& event);
/// RankExited::error begins with one of these if the quoted line may not be the error that ended the program: it is the
/// last line of the log, or a line that a logger called an error.
inline constexpr std::string_view kLastLine = "last line: ";
inline constexpr std::string_view kLogged = "logged: ";
/// "rank 1 failed: ValueError: no data", of a rank that muster ended after its failure.
std::string failed_text(const RankExited& event);
/// False if the error begins with kLastLine or kLogged, and if it is empty.
bool is_surely_an_error(std::string_view error);
/// The value of RankSilent::seen if the rank and its muster-agent are silent, but their node answers.
inline constexpr const char* kSeenByItsNodeAlone = "node answers";
std::string silent_text(const RankSilent& event);
std::string hung_text(const RankHung& event);
/// "rank 1 has made no progress for 12 s in section step, longer than the usual 10 s". `at`: when the event came; the
/// text then tells since when it lasts, and stays true while time passes.
std::string suspected_text(const AttemptSuspected& event, std::optional<Time> at = std::nullopt);
/// "rank 1 goes on after 40 s".
std::string suspicion_over_text(const SuspicionOver& event);
std::string node_lost_text(const NodeLost& event);
/// ", at 2026-11-20 19:48:55 UTC by the rank's clock" if the save was 2 s or more apart from its report at `at`; else
/// empty.
std::string saved_text(const CheckpointSaved& event, Time at);

/// "2026-11-23 20:45:29 UTC".
std::string utc_text(Time time);
/// When the next attempt starts, for an event's text: "starts now", "starts in 5 s", "starts later: held by anna until
/// released". An event has a time, so a wait is enough.
std::string starts_text(const Job& job, Millis wait);
/// When the next attempt starts, for a job's reason, which stays while time passes: "starts at 2026-11-23 20:45:29
/// UTC".
std::string starts_at_text(const Job& job, Millis wait);
/// Why the job may not start: "held by anna until released", "waiting for job 12 to succeed".
std::string what_it_waits_for(const Job& job);

/// "drained by ann since 2026-11-30 12:00:00 UTC: new driver".
std::string drain_text(const Drain& drain);

/// "once", "4 times".
std::string times_text(std::uint32_t count);
/// "1 rank", "2 ranks".
std::string count_text(std::size_t count, std::string_view singular);
/// "200 steps", or "21 stays" for a section that is not that of steps: what a hang limit is learned from.
std::string lessons_text(std::size_t count, std::string_view section);
/// "ValueError: no data": an error that a report tells. Either part may be empty.
std::string error_text(const std::string& type, const std::string& message);

}  // namespace core
