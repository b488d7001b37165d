#pragma once
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <exception>
#include <functional>
#include <latch>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "fsdp/comm/device_mesh.h"
#include "tests/fsdp/rank_threads.h"

constexpr int kWorldSizes[] = {1, 2, 3, 4};

/// Runs `body` on each rank of a world, with one thread per rank. CPU ranks use shared memory or sockets, and
/// CUDA device `rank` uses NCCL.
/// Rethrows the first rank's failure.
inline void run_ranks(int world_size, const fsdp::MeshOptions& wanted,
                      const std::function<void(fsdp::DeviceMesh&)>& body, c10::DeviceType device = c10::kCPU) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::latch connected(world_size);  // a rank that leaves earlier may break the others' connections
  run_rank_threads(world_size, [&](int rank) {
    fsdp::MeshOptions options = wanted;
    if (device != c10::kCPU) options.device = c10::Device(device, static_cast<c10::DeviceIndex>(rank));
    std::optional<fsdp::DeviceMesh> mesh;
    try {
      mesh.emplace(store, rank, world_size, options);
    } catch (...) {
      connected.count_down();
      throw;
    }
    connected.arrive_and_wait();
    body(*mesh);
  });
}

inline void run_ranks(int world_size, const std::function<void(fsdp::DeviceMesh&)>& body,
                      std::chrono::milliseconds timeout = std::chrono::seconds(30), c10::DeviceType device = c10::kCPU,
                      const std::vector<fsdp::MeshAxis>& axes = {}, bool shared_memory = true) {
  fsdp::MeshOptions options;
  options.timeout = timeout;
  options.axes = axes;
  options.shared_memory = shared_memory;
  run_ranks(world_size, options, body, device);
}
