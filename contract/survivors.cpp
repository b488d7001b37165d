#include "contract/survivors.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace contract {
namespace {

/// As Gloo, NCCL, c10d's store, sockets of the system, process pools, torchelastic, Horovod and JAX say it. In lower
/// case, for programs write them in any.
constexpr std::array kParts{
    std::string_view("the peer has closed the connection"),  // the engine of muster-worker
    std::string_view("is gone: process "),                   // its watcher, of another rank
    std::string_view("connection closed by peer"),
    std::string_view("connection closed by remote peer"),
    std::string_view("connection reset by peer"),
    std::string_view("connection refused"),
    std::string_view("connectionreseterror"),
    std::string_view("connectionrefusederror"),
    std::string_view("connectionabortederror"),
    std::string_view("connection was likely closed"),
    std::string_view("broken pipe"),
    std::string_view("brokenpipeerror"),
    std::string_view("brokenprocesspool"),
    std::string_view("socket closed"),
    std::string_view("socket timeout"),
    std::string_view("application timeout caused pair closure"),
    std::string_view("timed out waiting"),
    std::string_view("waiting for clients"),
    std::string_view("failed to pass monitoredbarrier"),
    std::string_view("remote process exited"),
    std::string_view("ncclremoteerror"),
    std::string_view("nccl communicator was aborted"),
    std::string_view("caught collective operation timeout"),
    std::string_view("process group watchdog thread terminated"),
    std::string_view("store->get("),
    std::string_view("failed to recv"),
    std::string_view("distbackenderror"),
    std::string_view("distnetworkerror"),
    std::string_view("diststoreerror"),
    std::string_view("got signal: 15"),
    std::string_view("horovodinternalerror"),
    std::string_view("jax distributed service detected fatal errors"),
};

bool is_equal(char any_case, char lower) {
  return std::tolower(static_cast<unsigned char>(any_case)) == lower;
}

}  // namespace

bool is_of_a_survivor(std::string_view error) {
  return std::ranges::any_of(kParts, [&](auto part) { return !std::ranges::search(error, part, is_equal).empty(); });
}

}  // namespace contract
