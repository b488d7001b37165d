// One rank of killed_rank_test.cpp. Rank KILLED ends by SIGKILL at its third call of a collective.
//   fsdp_killed_rank shared|sockets COLLECTIVE before|between|meeting KILLED RANK RANKS STORE
// "between" is after the start and before the wait, and "meeting" before the mesh stands. The others print the error of
// the call that fails, how long it took, and what the ranks that are left can do then.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/FileStore.hpp>

#include "fsdp/comm/device_mesh.h"

namespace {

constexpr int kLastCall = 3;

using Started = std::unique_ptr<fsdp::Pending>;
using Collective = std::function<Started(fsdp::DeviceMesh&)>;

const std::map<std::string, Collective>& collectives() {
  static const at::Tensor large = at::ones({12 * 50'000}), small = at::ones({12});
  static const at::Tensor part = at::empty({50'000 * 12});
  static at::Tensor text = at::ones({3'000'000});
  static const std::map<std::string, Collective> all = {
      {"all-gather", [](auto& mesh) { return mesh.shard().all_gather_into(large, "unit"); }},
      {"reduce-scatter",
       [](auto& mesh) {
         return mesh.shard().reduce_scatter(large, part.narrow(0, 0, large.numel() / mesh.world_size()), "unit");
       }},
      {"small-all-reduce", [](auto& mesh) { return mesh.shard().start_all_reduce(small, "unit"); }},
      {"large-all-reduce", [](auto& mesh) { return mesh.shard().start_all_reduce(large, "unit"); }},
      {"maximum",
       [](auto& mesh) {
         mesh.control().all_reduce(1.0, fsdp::Reduction::kMax);
         return Started();
       }},
      {"broadcast",
       [](auto& mesh) {
         mesh.control().broadcast(text);
         return Started();
       }},
      {"barrier",
       [](auto& mesh) {
         mesh.control().barrier();
         return Started();
       }},
  };
  return all;
}

/// A store whose rank ends at the first key of a transport. It has come to rank 0's watcher then.
struct DeadlyStore : c10d::FileStore {
  using FileStore::FileStore;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    if (key.find("control-0") != std::string::npos) ::raise(SIGKILL);
    FileStore::set(key, value);
  }
};

/// The error with which no mesh stands.
int fail_to_meet(const c10::intrusive_ptr<c10d::Store>& store, int rank, int ranks, const fsdp::MeshOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    const fsdp::DeviceMesh mesh(store, rank, ranks, options);
  } catch (const c10::Error& error) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::printf("%.3f s: %s\n", seconds, error.what_without_backtrace());
    return 0;
  }
  std::printf("the mesh stands\n");
  return 1;
}

int mapped_files() {
  std::ifstream maps("/proc/self/maps");
  int found = 0;
  for (std::string line; std::getline(maps, line);) found += line.find("memfd:fsdp") != std::string::npos;
  return found;
}

/// The error of the first call that fails.
std::string first_failure(fsdp::DeviceMesh& mesh, const Collective& collective, int killed, bool between,
                          double& seconds) {
  for (int call = 1; call <= kLastCall + 2; ++call) {
    const bool ends_here = mesh.rank() == killed && call == kLastCall;
    if (ends_here && !between) ::raise(SIGKILL);
    const auto begin = std::chrono::steady_clock::now();
    try {
      const Started started = collective(mesh);
      if (ends_here) ::raise(SIGKILL);
      if (started) started->wait();
    } catch (const c10::Error& error) {
      seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      return error.what_without_backtrace();
    }
  }
  return "no call has failed";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) return 2;
  const std::string what = argv[2];
  const bool is_shared = std::string(argv[1]) == "shared", between = std::string(argv[3]) == "between";
  const int killed = std::stoi(argv[4]), rank = std::stoi(argv[5]), ranks = std::stoi(argv[6]);
  at::set_num_threads(1);
  try {
    const bool meets = std::string(argv[3]) != "meeting";
    c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::FileStore>(argv[7], ranks);
    if (!meets && rank == killed) store = c10::make_intrusive<DeadlyStore>(argv[7], ranks);
    fsdp::MeshOptions options;
    options.timeout = std::chrono::seconds(30);
    options.shared_memory = is_shared;
    if (!meets) return fail_to_meet(store, rank, ranks, options);
    std::optional<fsdp::DeviceMesh> mesh(std::in_place, store, rank, ranks, options);
    TORCH_CHECK((mesh->shard().peer_memory() != nullptr) == is_shared, "another transport");
    double seconds = 0;
    const std::string error = first_failure(*mesh, collectives().at(what), killed, between, seconds);
    mesh.reset();
    std::printf("%.3f s, %d files left: %s\n", seconds, mapped_files(), error.c_str());
    options.key_prefix = "those that are left";
    fsdp::DeviceMesh next(store, rank < killed ? rank : rank - 1, ranks - 1, options);
    std::printf("then %g ranks\n", next.shard().all_reduce(1.0));
    return 0;
  } catch (const c10::Error& error) {
    std::printf("%s\n", error.what_without_backtrace());
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
  }
  return 1;
}
