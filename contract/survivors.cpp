#include "contract/survivors.h"

#include <algorithm>
#include <array>

namespace contract {
namespace {

/// As Gloo, NCCL, c10d's store, sockets of the system and torchelastic say it.
constexpr std::array<std::string_view, 20> kParts{
    "the peer has closed the connection",  // the engine of muster-worker
    "Connection closed by peer",
    "Connection reset by peer",
    "Connection refused",
    "ConnectionResetError",
    "ConnectionRefusedError",
    "ConnectionAbortedError",
    "Connection was likely closed",
    "Broken pipe",
    "BrokenPipeError",
    "Socket closed",
    "Socket Timeout",
    "remote process exited or there was a network error",
    "ncclRemoteError",
    "NCCL communicator was aborted",
    "Watchdog caught collective operation timeout",
    "failed to recv, got 0 bytes",
    "DistNetworkError",
    "DistStoreError",
    "got signal: 15",
};

}  // namespace

bool is_of_a_survivor(std::string_view error) {
  return std::ranges::any_of(kParts, [&](auto part) { return error.find(part) != std::string_view::npos; });
}

}  // namespace contract
