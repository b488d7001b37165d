#pragma once

#include "agent/rank/reporter.h"

namespace agent::rank {

/// Takes over the signals a scheduler sends. SIGUSR2 and SIGTERM only set a flag, which `signalled_stop` reads at the
/// next step boundary; a second SIGTERM, half a second or more after the first, ends the process at once with
/// kExitRequeue (two at once are one: Slurm sends them so). SIGCONT and SIGPIPE are ignored. Until
/// `now_there_is_something_to_save` the first SIGTERM or SIGUSR2 ends the process at once too, with kExitRequeue: a
/// rank that still waits for the others has nothing to lose and must not sit out its time limit.
void install_stop_signals();

/// From now on a first signal asks for a save instead of ending the process.
void now_there_is_something_to_save();

/// kSave once a signal has asked to stop, else kNone.
StopKind signalled_stop();

/// Forgets earlier signals and returns to the state before `install_stop_signals`' first signal. For tests.
void forget_stop_signals();

/// From now on the agent beside this rank can have the frames of each of its threads (agent/protocol/files.h): a file
/// in memory is there, and a handler for the signal by which the agent asks.
///
/// The handler wakes a thread that waits for nothing else. That thread asks each thread of the process by the same
/// signal to note the addresses of its frames, one after the other, and writes them with their names. A handler touches
/// no lock and no memory but its own, so it may interrupt anything. A thread that takes no signals, or stands in the
/// kernel, is left out after a moment. Does nothing where the system refuses a thread or the file. For one call.
void offer_stacks();

}  // namespace agent::rank
