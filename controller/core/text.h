#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/event.h"

namespace core {

/// Words from outside (a rank's last words, a user's name) are cut to this in sentences, in bytes.
inline constexpr std::size_t kMaxWordsBytes = 400;

/// `text` with every byte that is no valid UTF-8 replaced by '?'. Doing it twice changes nothing more.
std::string valid_utf8(std::string_view text);
/// Foreign words fit for a sentence: valid UTF-8, one line, trimmed, at most kMaxWordsBytes.
std::string plain_words(std::string_view text);

/// "250 ms", "1 s", "1.5 s", "12 min", "2 h 5 min".
std::string duration_text(Millis duration);
/// "SIGKILL"; "signal 99" for a number without a name.
std::string signal_text(int signal);

/// What an exit means for the attempt as a whole, if it is the first bad news.
Cause cause_of_exit(const ExitStatus& exit, bool out_of_memory);
/// "rank 1 killed by SIGKILL", "rank 0 exited with 3: no such file data.bin". The rank's own last words come first,
/// else the error of its program.
std::string exit_text(const RankExited& event);
/// What a program's own words begin with where they need not be the error that it ended with: its log's last line, or
/// one that a logger called an error.
inline constexpr std::string_view kLastLine = "last line: ";
inline constexpr std::string_view kLogged = "logged: ";
/// False for such words, and for none.
bool is_surely_an_error(std::string_view error);
/// What RankSilent::seen is where neither the rank nor what stands beside it is heard, and yet its node is there.
inline constexpr const char* kSeenByItsNodeAlone = "node answers";
std::string silent_text(const RankSilent& event);
std::string hung_text(const RankHung& event);
std::string node_lost_text(const NodeLost& event);
/// When the save was, if that is not about when it was told (`at`): ", at 2026-11-20 19:48:55 UTC by the rank's clock".
std::string saved_text(const CheckpointSaved& event, Time at);

/// "2026-11-23 20:45:29 UTC".
std::string utc_text(Time time);
/// "starts now", "starts in 5 s", "starts later: held by anna until released": of the job's next attempt, in an event,
/// which has a time of its own.
std::string starts_text(const Job& job, Millis wait);
/// The same in what a job says of itself as long as it waits: "starts at 2026-11-23 20:45:29 UTC".
std::string starts_at_text(const Job& job, Millis wait);
/// Of a job that may not start: "held by anna", "waiting for job 12 to succeed".
std::string what_it_waits_for(const Job& job);

/// "failure": one end by this cause, to be counted: "failure 1 of 3".
std::string_view cause_noun(Cause cause);
/// "failed": for "failed 4 times without progress".
std::string_view cause_verb(Cause cause);
/// "once", "4 times".
std::string times_text(std::uint32_t count);
/// "1 rank", "2 ranks".
std::string count_text(std::size_t count, std::string_view singular);

}  // namespace core
