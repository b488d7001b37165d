#pragma once
#include <c10/util/Exception.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "fsdp/comm/device_mesh.h"

/// One rank of a world of processes on this machine.
struct ForkedRank {
  int rank = 0;
  int world_size = 1;
  c10::intrusive_ptr<c10d::Store> store;  // null when the world has one rank
};

/// Calls `body`, prints what it throws, and returns an exit status.
inline int run_rank_body(const ForkedRank& place, const std::function<void(const ForkedRank&)>& body) {
  try {
    body(place);
    return 0;
  } catch (const std::exception& error) {
    const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
    const std::string text = c10_error != nullptr ? c10_error->what_without_backtrace() : error.what();
    std::fprintf(stderr, "rank %d of %d: %s\n", place.rank, place.world_size, text.c_str());
    return 1;
  }
}

/// The store of a child: rank 0 serves it and writes its port into the pipe, once for each other rank.
inline c10::intrusive_ptr<c10d::Store> meet_over_pipe(int rank, int world_size, const int (&ends)[2]) {
  std::uint16_t port = 0;
  if (rank == 0) {
    const auto listening = fsdp::listen_store("127.0.0.1");
    port = listening.port;
    for (int i = 1; i < world_size; ++i)
      TORCH_CHECK(::write(ends[1], &port, sizeof port) == sizeof port, "the other ranks have ended");
    return listening.store;
  }
  ::close(ends[1]);
  TORCH_CHECK(::read(ends[0], &port, sizeof port) == sizeof port, "rank 0 ended before it served a store");
  return fsdp::connect_store("127.0.0.1", port);
}

/// Runs `body` on each rank of a world and returns the exit status of the program. Each rank is a process forked from
/// this one, which must have no threads yet. A world of one rank runs in this process. The body must end with a barrier
/// of all ranks, because rank 0 serves the store. When a rank fails, the others are killed.
inline int run_forked_ranks(int world_size, const std::function<void(const ForkedRank&)>& body) {
  if (world_size == 1) return run_rank_body({}, body);
  int ends[2];
  if (::pipe(ends) != 0) {
    std::perror("pipe");
    return 1;
  }
  std::vector<pid_t> children;
  const pid_t parent = ::getpid();
  bool failed = false;
  for (int rank = 0; rank < world_size && !failed; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) return 1;
      return run_rank_body({rank, world_size, nullptr}, [&](const ForkedRank& place) {
        body({place.rank, place.world_size, meet_over_pipe(place.rank, place.world_size, ends)});
      });
    }
    failed = child < 0;
    if (failed) std::perror("fork");
    if (!failed) children.push_back(child);
  }
  ::close(ends[0]);
  ::close(ends[1]);
  std::size_t left = children.size();
  while (left > 0) {
    if (failed) {
      for (const pid_t child : children) ::kill(child, SIGKILL);
    }
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, 0);
    if (ended < 0) break;
    failed = failed || status != 0;
    std::erase(children, ended);
    --left;
  }
  return failed ? 1 : 0;
}
