#pragma once
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

/// Runs `body` for each rank of a world, in a thread of its own. Rethrows the first rank's failure.
inline void run_rank_threads(int world_size, const std::function<void(int rank)>& body) {
  std::vector<std::exception_ptr> failures(world_size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        SCOPED_TRACE("rank " + std::to_string(rank) + " of " + std::to_string(world_size));
        at::set_num_threads(1);
        body(rank);
      } catch (...) {
        failures[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& failure : failures)
    if (failure) std::rethrow_exception(failure);
}
