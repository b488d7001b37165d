// How long ranks take to agree on a step: processes of this machine that hold no model, over real sockets.
//
// Usage: agreement_bench tree RANKS STEPS | pairs RANKS ROUNDS. "tree" makes so many steps of worker::AgreementUnderWay
// over the tree that control() uses. "pairs" makes rounds of 50 steps over the tree and 50 over the full mesh with an
// all-gather of every rank's row, as hosts agreed before, in turn. In a further 10 steps of each the ranks do something
// else for 5 ms between start and wait: then only the wait is counted. Rank 0 prints one JSON line. Each process has
// the watcher of a mesh, and connections to it and to the store, as a rank of a training has.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <vector>

#include "base/fd.h"
#include "bench/forked_ranks.h"
#include "fsdp/comm/device_mesh.h"
#include "fsdp/comm/transport.h"
#include "fsdp/text/json.h"
#include "worker/train/agreement.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kStepsOfARound = 50, kOverlappedSteps = 10;
constexpr std::chrono::milliseconds kElse{5};
constexpr std::chrono::minutes kTimeout{5};

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

double percentile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<std::size_t>(part * static_cast<double>(values.size())))];
}

worker::Agreement words_of(const fsdp::Communicator& hosts) {
  worker::Agreement words;
  words.losses = {static_cast<double>(hosts.rank())};
  words.next_weight = 1;
  words.next_tokens = 4096;
  return words;
}

void check(double ranks, double losses, double weight) {
  TORCH_CHECK(losses == ranks * (ranks - 1) / 2 && weight == ranks, "the ranks agreed on a wrong sum");
}

/// A step in two parts, with what the rank does between them.
using Step = std::function<void(fsdp::Communicator& hosts, const std::function<void()>& between)>;

void agree_by_sums(fsdp::Communicator& hosts, const std::function<void()>& between) {
  worker::AgreementUnderWay agreement(hosts, words_of(hosts));
  between();
  const worker::Agreement agreed = agreement.wait();
  check(hosts.world_size(), agreed.losses.front(), agreed.next_weight);
}

/// The agreement until now: every rank gets the row of every other one.
void agree_by_rows(fsdp::Communicator& hosts, const std::function<void()>& between) {
  constexpr std::int64_t kColumns = 7;
  const worker::Agreement words = words_of(hosts);
  const at::Tensor table = at::zeros({hosts.world_size() * kColumns}, at::kDouble);
  auto* own = table.mutable_data_ptr<double>() + hosts.rank() * kColumns;
  own[0] = words.losses.front();
  own[1] = words.next_weight;
  const auto pending = hosts.all_gather_into(table);
  between();
  pending->wait();
  double losses = 0, weight = 0;
  for (int rank = 0; rank < hosts.world_size(); ++rank) {
    losses += table.const_data_ptr<double>()[rank * kColumns];
    weight += table.const_data_ptr<double>()[rank * kColumns + 1];
  }
  check(hosts.world_size(), losses, weight);
}

/// Milliseconds a step on this rank.
double steps_one_after_the_other(fsdp::Communicator& hosts, const Step& step) {
  hosts.barrier();
  const auto begin = Clock::now();
  for (int i = 0; i < kStepsOfARound; ++i) step(hosts, [] {});
  return milliseconds_since(begin) / kStepsOfARound;
}

/// Milliseconds in wait() a step on the slowest rank, the median of some steps.
double waits_after_something_else(fsdp::Communicator& hosts, const Step& step) {
  std::vector<double> waits;
  for (int i = 0; i < kOverlappedSteps; ++i) {
    hosts.barrier();
    Clock::time_point begin;
    step(hosts, [&] {
      std::this_thread::sleep_for(kElse);
      begin = Clock::now();
    });
    waits.push_back(hosts.all_reduce(milliseconds_since(begin), fsdp::Reduction::kMax));
  }
  return percentile(waits, 0.5);
}

/// Sockets that this process has open.
int open_sockets() {
  int found = 0;
  DIR* folder = ::opendir("/proc/self/fd");
  TORCH_CHECK(folder != nullptr, "no /proc/self/fd");
  while (const dirent* entry = ::readdir(folder)) {
    std::array<char, 32> target{};
    const std::string path = std::string("/proc/self/fd/") + entry->d_name;
    if (::readlink(path.c_str(), target.data(), target.size() - 1) > 0)
      found += std::string(target.data()).starts_with("socket:") ? 1 : 0;
  }
  ::closedir(folder);
  return found;
}

/// A mesh of hosts: nothing goes over its axis "shard".
std::unique_ptr<fsdp::DeviceMesh> mesh_of_hosts(const ForkedRank& place) {
  fsdp::MeshOptions options;
  options.timeout = kTimeout;
  options.on_late = [](const std::string&) {};
  auto mesh = std::make_unique<fsdp::DeviceMesh>(
      place.rank, place.world_size,
      [&](const fsdp::MeshGroup& group) {
        if (group.axis != "control") return fsdp::make_still_transport(group.rank, group.size);
        const auto keys = c10::make_intrusive<c10d::PrefixStore>("hosts", place.store);
        return fsdp::make_tree_transport(keys, {group.rank, group.size, kTimeout, ""});
      },
      options);
  mesh->watch(c10::make_intrusive<c10d::PrefixStore>("watcher", place.store));
  return mesh;
}

void print(const fsdp::Json::Object& line) {
  std::puts(fsdp::Json(line).dump().c_str());
  std::fflush(stdout);
}

void measure_tree(const ForkedRank& place, int steps, Clock::time_point started) {
  auto* const mesh = mesh_of_hosts(place).release();  // until the process ends
  fsdp::Communicator& hosts = mesh->control();
  hosts.barrier();
  const double meeting_ms = milliseconds_since(started);
  const double before = static_cast<double>(hosts.links().messages_sent);
  std::vector<double> took;
  for (int step = 0; step < steps; ++step) {
    const auto begin = Clock::now();
    agree_by_sums(hosts, [] {});
    took.push_back(milliseconds_since(begin));
  }
  const double sent = static_cast<double>(hosts.links().messages_sent) - before;
  const double messages = hosts.all_reduce(sent);
  const double most = hosts.all_reduce(static_cast<double>(hosts.links().connections), fsdp::Reduction::kMax);
  if (place.rank == 0)
    print({{"ranks", place.world_size},
           {"steps", steps},
           {"step_ms", percentile(took, 0.5)},
           {"step_99_ms", percentile(took, 0.99)},
           {"messages_a_step", messages / steps},
           {"connections", hosts.links().connections},
           {"most_connections", most},
           {"sockets_of_rank_0", open_sockets()},
           {"meeting_s", meeting_ms / 1e3}});
  hosts.barrier();
}

void measure_pairs(const ForkedRank& place, int rounds) {
  auto* const mesh = mesh_of_hosts(place).release();  // until the process ends
  fsdp::Communicator& tree = mesh->control();
  const auto keys = c10::make_intrusive<c10d::PrefixStore>("full mesh", place.store);
  fsdp::Communicator full(place.rank, place.world_size, c10::kCPU,
                          fsdp::make_socket_transport(keys, {place.rank, place.world_size, kTimeout, ""}));
  fsdp::Json::Array of_tree, of_mesh, tree_waits, mesh_waits;
  for (int round = 0; round < rounds; ++round) {
    of_tree.emplace_back(steps_one_after_the_other(tree, agree_by_sums));
    of_mesh.emplace_back(steps_one_after_the_other(full, agree_by_rows));
    tree_waits.emplace_back(waits_after_something_else(tree, agree_by_sums));
    mesh_waits.emplace_back(waits_after_something_else(full, agree_by_rows));
  }
  if (place.rank == 0)
    print({{"ranks", place.world_size},
           {"tree_ms", std::move(of_tree)},
           {"mesh_ms", std::move(of_mesh)},
           {"tree_waits_ms", std::move(tree_waits)},
           {"mesh_waits_ms", std::move(mesh_waits)},
           {"mesh_connections", full.links().connections},
           {"tree_connections", tree.links().connections}});
  tree.barrier();
}

/// Returns when all ranks have come. One that ended earlier would be missing in collectives of the others.
void await_all(const ForkedRank& place) {
  try {
    if (place.store->add("done", 1) == place.world_size) place.store->set("all done", "1");
    place.store->wait({"all done"}, kTimeout);
  } catch (const std::exception&) {
    // Rank 0 has the store, and has left: all had come.
  }
}

}  // namespace

int main(int count, char** arguments) {
  const std::string how = count > 1 ? arguments[1] : "";
  const int ranks = count > 2 ? std::atoi(arguments[2]) : 0, times = count > 3 ? std::atoi(arguments[3]) : 0;
  if ((how != "tree" && how != "pairs") || ranks < 2 || times < 1) {
    std::fprintf(stderr, "usage: agreement_bench tree RANKS STEPS | pairs RANKS ROUNDS\n");
    return 2;
  }
  base::raise_open_files_limit();
  const auto started = Clock::now();
  return run_forked_ranks(ranks, [&](const ForkedRank& place) {
    at::set_num_threads(1);
    if (how == "tree") measure_tree(place, times, started);
    if (how == "pairs") measure_pairs(place, times);
    await_all(place);
    // At an end LibTorch's destructors write to pages that the processes share. 512 of them would take 29 GiB.
    std::_Exit(0);
  });
}
