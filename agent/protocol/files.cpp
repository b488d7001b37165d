#include "agent/protocol/files.h"

#include <algorithm>
#include <cctype>

namespace agent::protocol {
namespace {

/// Words of Gloo, NCCL, c10d's store, sockets of the system, process pools, torchelastic, Horovod and JAX about a rank
/// that has gone, and of programs that a signal has asked to leave. In lower case, for programs write them in any.
constexpr std::string_view kParts[]{
    "the peer has closed the connection",  // the engine of muster-worker
    "is gone: process ",                   // its watcher, of another rank
    "connection closed by peer",
    "connection closed by remote peer",
    "connection reset by peer",
    "connection refused",
    "connectionreseterror",
    "connectionrefusederror",
    "connectionabortederror",
    "connection was likely closed",
    "broken pipe",
    "brokenpipeerror",
    "brokenprocesspool",
    "socket closed",
    "socket timeout",
    "application timeout caused pair closure",
    "timed out waiting",
    "waiting for clients",
    "failed to pass monitoredbarrier",
    "remote process exited",
    "ncclremoteerror",
    "nccl communicator was aborted",
    "caught collective operation timeout",
    "process group watchdog thread terminated",
    "store->get(",
    "failed to recv",
    "distbackenderror",
    "distnetworkerror",
    "diststoreerror",
    "got signal: 15",
    "killed by signal: terminated",  // of a data loader's worker, by the signal that its rank got
    "keyboardinterrupt",             // of a handler that raises
    "horovodinternalerror",
    "jax distributed service detected fatal errors",
};

bool is_equal(char any_case, char lower) {
  return std::tolower(static_cast<unsigned char>(any_case)) == lower;
}

}  // namespace

bool is_of_a_survivor(std::string_view error) {
  return std::ranges::any_of(kParts, [&](auto part) { return !std::ranges::search(error, part, is_equal).empty(); });
}

}  // namespace agent::protocol
