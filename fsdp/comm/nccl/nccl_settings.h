#pragma once
#include <chrono>
#include <string>
#include <vector>

/// Decisions about NCCL that need no NCCL. So builds without CUDA compile and test them.
namespace fsdp::nccl {

struct Setting {
  std::string name, value;
};

/// Variables of the environment that NCCL and c10d read at their start, for communicators whose collectives may wait
/// for `timeout`.
///
/// [Note: who ends a rank] c10d has a watchdog, and a monitor of that watchdog. Each would end the process by SIGABRT:
/// the one when a collective fails, the other when the watchdog stands still for eight minutes, as in an abort that
/// blocks. Then nobody would learn which rank was missing. So the watchdog only aborts communicators, and the monitor
/// only writes to the log. The mesh's watcher names the rank, and its aborts are bounded (kAbortLimit).
///
/// [Note: order of launches] Gathers, reductions and sums over replicas have communicators of their own on one GPU. A
/// kernel of NCCL waits on its GPU for its peers. If two GPUs begin two of them in unlike orders, and have no room for
/// both, each waits for ever. NCCL_LAUNCH_ORDER_IMPLICIT keeps the order in which the host has launched them, which is
/// the same on all ranks. NCCL has it since 2.26.
std::vector<Setting> settings(std::chrono::milliseconds timeout);

/// Sets those that the environment does not have. Before NCCL's first call, and while no other thread reads the
/// environment.
void set_where_unset(const std::vector<Setting>& settings);

/// True if NCCL of this version, such as 22809 for 2.28.9, keeps the order of launches, and the environment lets it.
bool keeps_launch_order(int version);

/// How long a communicator may take to shut down or to abort before its rank goes on without it.
inline constexpr std::chrono::seconds kShutdownLimit{10}, kAbortLimit{30};

}  // namespace fsdp::nccl
