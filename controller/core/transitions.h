#pragma once

#include <string>
#include <string_view>

#include "core/apply.h"

namespace core {

// What each kind of event does to a job: one function each, a missing one does not compile. Private to apply.cpp.

// Attempts and their ranks: attempt_events.cpp.
void on(Applied& out, const AttemptLaunched& e, Time at);
void on(Applied& out, const AttemptLaunchFailed& e, Time at);
void on(Applied& out, const AttemptStarted& e, Time at);
void on(Applied& out, const AttemptStopping& e, Time at);
void on(Applied& out, const AttemptResumed& e, Time at);
void on(Applied& out, const CheckpointSaved& e, Time at);
void on(Applied& out, const CheckpointFolderSeen& e, Time at);
void on(Applied& out, const TimeLimitReached& e, Time at);
void on(Applied& out, const TimeLimitAnswered& e, Time at);
void on(Applied& out, const AttemptGone& e, Time at);
// rank_events.cpp
void on(Applied& out, const RankJoined& e, Time at);
void on(Applied& out, const RankExited& e, Time at);
void on(Applied& out, const RankSilent& e, Time at);
void on(Applied& out, const RankHung& e, Time at);
void on(Applied& out, const NodeLost& e, Time at);
// What people ask, and other jobs: job_events.cpp.
void on(Applied& out, const JobSubmitted& e, Time at);
void on(Applied& out, const CancelRequested& e, Time at);
void on(Applied& out, const RequeueRequested& e, Time at);
void on(Applied& out, const HoldRequested& e, Time at);
void on(Applied& out, const ReleaseRequested& e, Time at);
void on(Applied& out, const TimeLimitChanged& e, Time at);
void on(Applied& out, const DependencyEnded& e, Time at);
void on(Applied& out, const JobRemoved& e, Time at);

// Shared by them.
std::string attempt_text(AttemptNumber number);
std::string rank_text(RankNumber number);
/// No attempt is there: pending or waiting.
bool is_idle(const Job& job);
AttemptNumber next_number(const Job& job);
/// The attempt an event speaks of, if it has not ended; null means that the event is late news.
Attempt* alive(Job& job, AttemptNumber number);
void late(Applied& out, AttemptNumber number);
/// A queued attempt has begun to run; nothing for others.
void begin(Applied& out, Attempt& attempt, Time at);
/// A recipe's attempt runs once every rank has spoken (or has left with 0 already).
void note_joined(Applied& out, Attempt& attempt, Time at);
/// A rank of any program has spoken itself, or what it alone can know is known.
void note_report(Job& job, Attempt& attempt, RankNumber rank);

}  // namespace core
