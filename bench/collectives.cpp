// How long all-gather and reduce-scatter take between processes of this machine, beside one memcpy of as many bytes.
//
// Usage: collectives_bench sockets|shared|copied BYTES ROUNDS [RANKS]. BYTES are those of the gathered buffer and of
// the reduce-scatter's input. "shared" takes its tensors from the transport's memory, as the engine's pools do.
// "copied" is shared memory with tensors from elsewhere. Rank 0 prints one JSON line of medians in milliseconds. A
// round's time is that of its slowest rank. The memcpy is rank 0's, while the other ranks sleep.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "bench/forked_ranks.h"
#include "fsdp/comm/device_mesh.h"
#include "fsdp/comm/transport.h"

namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double milliseconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

/// Tensors of fp32 that a transport sends from, used as by the engine: peers are awaited before a tensor is
/// overwritten.
class Sent {
 public:
  Sent(fsdp::DeviceMesh& mesh, bool from_peer_memory, std::int64_t bytes) {
    if (from_peer_memory) peer_memory_ = mesh.shard().peer_memory();
    memory_ = peer_memory_ ? peer_memory_->allocate(bytes) : at::empty({bytes}, at::kByte);
    tensor_ = at::from_blob(memory_.mutable_data_ptr(), {bytes / 4}, at::kFloat);
    tensor_.fill_(1);
  }
  const at::Tensor& tensor() {
    if (peer_memory_) peer_memory_->await_readers(memory_);
    return tensor_;
  }

 private:
  std::shared_ptr<fsdp::PeerMemory> peer_memory_;
  at::Tensor memory_, tensor_;
};

/// The median of the slowest rank's times.
double median_of_rounds(fsdp::DeviceMesh& mesh, int rounds, const std::function<void()>& collective) {
  std::vector<double> took;
  for (int round = 0; round < rounds + 2; ++round) {
    mesh.control().barrier();
    const double mine = milliseconds_of(collective);
    const double slowest = mesh.control().all_reduce(mine, fsdp::Reduction::kMax);
    if (round >= 2) took.push_back(slowest);
  }
  return median(took);
}

double memcpy_milliseconds(std::int64_t bytes, int rounds) {
  std::vector<char> from(static_cast<std::size_t>(bytes), 1), to(static_cast<std::size_t>(bytes), 2);
  std::vector<double> took;
  for (int round = 0; round < rounds + 2; ++round) {
    const double mine = milliseconds_of([&] { std::memcpy(to.data(), from.data(), from.size()); });
    if (round >= 2) took.push_back(mine);
  }
  return median(took);
}

void measure(fsdp::DeviceMesh& mesh, const std::string& how, std::int64_t bytes, int rounds) {
  const bool from_peer_memory = how == "shared";
  double copy_ms = 0;
  if (mesh.rank() == 0) copy_ms = memcpy_milliseconds(bytes, rounds);
  mesh.control().barrier();
  Sent buffer(mesh, from_peer_memory, bytes), input(mesh, from_peer_memory, bytes);
  at::Tensor output = at::zeros({bytes / 4 / mesh.world_size()});
  const double gather_ms =
      median_of_rounds(mesh, rounds, [&] { mesh.shard().all_gather_into(buffer.tensor(), "buffer")->wait(); });
  const double reduce_ms =
      median_of_rounds(mesh, rounds, [&] { mesh.shard().reduce_scatter(input.tensor(), output, "input")->wait(); });
  if (mesh.rank() == 0)
    std::printf(
        "{\"transport\":\"%s\",\"ranks\":%d,\"bytes\":%lld,\"memcpy_ms\":%.3f,\"all_gather_ms\":%.3f,"
        "\"reduce_scatter_ms\":%.3f}\n",
        how.c_str(), mesh.world_size(), static_cast<long long>(bytes), copy_ms, gather_ms, reduce_ms);
  mesh.control().barrier();
}

}  // namespace

int main(int count, char** arguments) {
  const std::string how = count > 1 ? arguments[1] : "";
  const std::int64_t bytes = count > 2 ? std::atoll(arguments[2]) : 0;
  const int rounds = count > 3 ? std::atoi(arguments[3]) : 0, ranks = count > 4 ? std::atoi(arguments[4]) : 2;
  if ((how != "sockets" && how != "shared" && how != "copied") || bytes <= 0 || rounds < 1 || ranks < 2) {
    std::fprintf(stderr, "usage: collectives_bench sockets|shared|copied BYTES ROUNDS [RANKS]\n");
    return 2;
  }
  return run_forked_ranks(ranks, [&](const ForkedRank& place) {
    at::set_num_threads(1);
    fsdp::MeshOptions options;
    options.shared_memory = how != "sockets";
    fsdp::DeviceMesh mesh(place.store, place.rank, place.world_size, options);
    TORCH_CHECK(!options.shared_memory || mesh.shard().peer_memory(), "this system does not let ranks share memory");
    measure(mesh, how, bytes, rounds);
  });
}
