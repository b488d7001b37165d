#pragma once

namespace agent::rank {

/// From now on the agent beside this rank can have the frames of each of its threads (agent/protocol/stacks.h): a file
/// in memory is there, and a handler for the signal by which the agent asks.
///
/// The handler wakes a thread that waits for nothing else. That thread asks each thread of the process by the same
/// signal to note the addresses of its frames, one after the other, and writes them with their names. A handler touches
/// no lock and no memory but its own, so it may interrupt anything. A thread that takes no signals, or stands in the
/// kernel, is left out after a moment. Does nothing where the system refuses a thread or the file. For one call.
void offer_stacks();

}  // namespace agent::rank
