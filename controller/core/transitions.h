#pragma once

#include <string>
#include <string_view>

#include "core/apply.h"

namespace core {

// What each kind of event does to a job. Private to core. Every kind has a function: a missing one does not compile.

// attempt_events.cpp
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
// job_events.cpp: submit, requests of people, and ends of other jobs
void on(Applied& out, const JobSubmitted& e, Time at);
void on(Applied& out, const CancelRequested& e, Time at);
void on(Applied& out, const RequeueRequested& e, Time at);
void on(Applied& out, const HoldRequested& e, Time at);
void on(Applied& out, const ReleaseRequested& e, Time at);
void on(Applied& out, const TimeLimitChanged& e, Time at);
void on(Applied& out, const DependencyEnded& e, Time at);
void on(Applied& out, const JobRemoved& e, Time at);

// Shared by all three.
std::string attempt_text(AttemptNumber number);
std::string rank_text(RankNumber number);
/// True while the job has no attempt: it is kPending or kWaiting.
bool is_idle(const Job& job);
AttemptNumber next_number(const Job& job);
/// The attempt that the event is about; null if it has ended, so that the event is late news.
Attempt* alive(Job& job, AttemptNumber number);
void late(Applied& out, AttemptNumber number);
/// Marks the attempt as started. Does nothing if it has started already or is draining.
void begin(Applied& out, Attempt& attempt, Time at);
/// Moves a starting attempt to kRunning once every rank has joined (or has exited with 0 already).
void note_joined(Applied& out, Attempt& attempt, Time at);
/// Notes that a command's rank has reported by itself. The caller has seen something that only the program can know.
void note_report(Job& job, Attempt& attempt, RankNumber rank);

}  // namespace core
