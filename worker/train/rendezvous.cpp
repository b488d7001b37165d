#include "worker/train/rendezvous.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "worker/train/gpu.h"

namespace worker {
namespace {

/// How long ranks try to reach rank 0's store. Their starts may be minutes apart.
constexpr std::chrono::minutes kStorePatience{5};

/// The store that rank 0 serves. Sets `mine` to its address.
fsdp::ListeningStore listen(const agent::rank::RankEnvironment& environment, const agent::rank::Reporter& reporter,
                            agent::rank::Endpoint& mine) {
  if (!reporter.assigns_rendezvous()) {
    if (!environment.master) {
      throw std::runtime_error("no rendezvous address: set MASTER_ADDR and MASTER_PORT to rank 0's address");
    }
    mine = *environment.master;
  } else {
    const bool one_node = environment.local_world_size == environment.world_size || !environment.controller;
    mine = {one_node ? "127.0.0.1" : agent::rank::own_address_towards(*environment.controller), 0};
  }
  auto listening = fsdp::listen_store(mine.host, mine.port);
  mine.port = listening.port;
  return listening;
}

/// Throws when some ranks have a GPU and others do not. Such ranks would wait for each other until their timeouts.
void check_same_device(c10d::Store& store, const std::string& prefix, int rank, bool gpu) {
  const auto text_of = [](bool has) { return std::string(has ? "a GPU" : "no GPU"); };
  const std::string key = prefix + "/device", mine = text_of(gpu);
  if (rank == 0) store.set(key, std::vector<std::uint8_t>(mine.begin(), mine.end()));
  const auto bytes = store.get(key);
  if (const std::string first(bytes.begin(), bytes.end()); first != mine) {
    throw std::runtime_error("rank " + std::to_string(rank) + " sees " + mine + ", but rank 0 sees " + first +
                             "; give every rank GPUs, or hide them all with CUDA_VISIBLE_DEVICES=\"\"");
  }
}

/// The same wait is told once. To musterd a log that grows is output, so a line that says of a hang that it goes on
/// would put off its end. Thread-safe.
class LastWord {
 public:
  bool is_new(const std::string& text) {
    const std::scoped_lock lock(mutex_);
    return std::exchange(text_, text) != text;
  }

 private:
  std::mutex mutex_;
  std::string text_;
};

}  // namespace

std::unique_ptr<fsdp::DeviceMesh> meet(const agent::rank::RankEnvironment& environment, agent::rank::Reporter& reporter,
                                       fsdp::MeshOptions options) {
  options.device = fsdp::device_of_rank(environment.local_rank);
  refuse_cpu_instead_of_gpus(options.device);
  if (environment.world_size == 1) return std::make_unique<fsdp::DeviceMesh>(nullptr, 0, 1, options);
  options.on_late = [rank = environment.rank, told = std::make_shared<LastWord>()](const std::string& text) {
    if (!told->is_new(text)) return;
    std::printf("[rank %d] waiting: %s\n", rank, text.c_str());
    std::fflush(stdout);
  };
  c10::intrusive_ptr<c10d::Store> store;
  agent::rank::Endpoint at;
  if (environment.rank == 0) {
    agent::rank::Endpoint mine;
    store = listen(environment, reporter, mine).store;
    at = reporter.rendezvous(mine);
  } else {
    at = reporter.rendezvous(std::nullopt);
    store = fsdp::connect_store(at.host, at.port, kStorePatience, options.on_late);
  }
  if (environment.local_world_size != environment.world_size)
    options.interface_address = agent::rank::own_address_towards(at);
  options.key_prefix = "attempt-" + std::to_string(environment.attempt);
  check_same_device(*store, options.key_prefix, environment.rank, options.device.is_cuda());
  return std::make_unique<fsdp::DeviceMesh>(std::move(store), environment.rank, environment.world_size, options);
}

}  // namespace worker
