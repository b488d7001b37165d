// Measures the cost of saves: a sharded model on RANKS ranks (threads of this process, over sockets), AdamW, and as
// many bytes in the files of a checkpoint as asked for. Each way is warmed up by one save. begin_save() and the copy
// beside it are measured kPairs times in turn, and the others once.
//
// Usage: checkpoint_speed FOLDER RANKS MIB. Prints one JSON line:
//   bytes           of the checkpoint
//   save_s          Checkpointer::save(): from a barrier until the last rank has returned
//   removal_s       then until the checkpoint before is removed; a thread does that
//   plain_s         as many bytes a rank written straight to the disk: O_DIRECT, 16 MiB a write, fdatasync
//   blocked_s       begin_save(): how long the slowest rank could not train; the median
//   copy_s          a copy of shards and states into such memory that is there already, and nothing else; the median
//   blocked_copies  the median of their ratio
//   beside_s        from begin_save() until the checkpoint is durable and the one before removed; the median
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fcntl.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "fsdp/engine/fully_shard.h"
#include "fsdp/files/checkpoint.h"
#include "fsdp/optim/optimizers.h"

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kLayers = 16, kPairs = 7;
constexpr std::size_t kWriteBytes = 16 << 20, kAlignment = 4096;

struct Layer : torch::nn::Module {
  explicit Layer(std::int64_t numel) : weight(register_parameter("weight", at::full({numel}, 0.5))) {}
  at::Tensor weight;
};

struct Model : torch::nn::Module {
  explicit Model(std::int64_t numel) {
    for (int i = 0; i < kLayers; ++i)
      layers.push_back(register_module("layer" + std::to_string(i), std::make_shared<Layer>(numel / kLayers)));
  }
  std::vector<std::shared_ptr<Layer>> layers;
};

double median(std::vector<double> numbers) {
  std::nth_element(numbers.begin(), numbers.begin() + numbers.size() / 2, numbers.end());
  return numbers[numbers.size() / 2];
}

void write_plainly(const fs::path& path, std::int64_t bytes) {
  const std::unique_ptr<char, decltype(&std::free)> memory(
      static_cast<char*>(std::aligned_alloc(kAlignment, kWriteBytes)), &std::free);
  std::fill_n(memory.get(), kWriteBytes, 'x');
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0644);
  TORCH_CHECK(fd >= 0, "cannot create ", path.string(), " for direct writes");
  for (std::int64_t left = bytes; left > 0; left -= static_cast<std::int64_t>(kWriteBytes)) {
    const auto piece =
        std::min(kWriteBytes, (static_cast<std::size_t>(left) + kAlignment - 1) / kAlignment * kAlignment);
    TORCH_CHECK(::write(fd, memory.get(), piece) == static_cast<::ssize_t>(piece), "cannot write ", path.string());
  }
  TORCH_CHECK(::fdatasync(fd) == 0, "cannot flush ", path.string());
  ::close(fd);
  ::unlink(path.c_str());
}

class Bench {
 public:
  Bench(fs::path folder, int ranks, std::int64_t bytes)
      : folder_(std::move(folder)), ranks_(ranks), bytes_(bytes), together_(ranks), ends_(ranks) {}

  void run() {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks_; ++rank)
      threads.emplace_back([this, rank, store] {
        at::set_num_threads(1);
        fsdp::DeviceMesh mesh(store, rank, ranks_);
        rank_body(mesh);
        together_.arrive_and_wait();
      });
    for (std::thread& thread : threads) thread.join();
    std::printf(
        "{\"bytes\": %lld, \"save_s\": %.6f, \"removal_s\": %.6f, \"plain_s\": %.6f, \"blocked_s\": %.6f, \"copy_s\": "
        "%.6f, "
        "\"blocked_copies\": %.4f, \"beside_s\": %.6f}\n",
        static_cast<long long>(saved_bytes_), save_s_, removal_s_, plain_s_, blocked_s_, copy_s_, blocked_copies_,
        beside_s_);
  }

 private:
  /// Seconds from a barrier until the last rank is done.
  double timed(int rank, const std::function<void()>& work) {
    together_.arrive_and_wait();
    const auto start = Clock::now();
    work();
    ends_[static_cast<std::size_t>(rank)] = std::chrono::duration<double>(Clock::now() - start).count();
    together_.arrive_and_wait();
    const double slowest = *std::max_element(ends_.begin(), ends_.end());
    together_.arrive_and_wait();
    return slowest;
  }

  void rank_body(fsdp::DeviceMesh& mesh) {
    const int rank = mesh.rank();
    const auto module = std::make_shared<Model>(bytes_ / 12);  // fp32 values and the two averages of AdamW
    fsdp::ShardedModel model(module, mesh);
    for (const auto& layer : module->layers) model.fully_shard(layer);
    fsdp::AdamW optimizer(model);
    std::vector<at::Tensor> flats, copies;
    for (const auto& unit : model.units())
      for (const auto& segment : unit->segments()) {
        flats.push_back(segment->shard());
        for (const std::string& state : optimizer.state_names()) flats.push_back(segment->state(state).fill_(0.25));
      }
    const auto copy = [&] {
      const at::NoGradGuard no_grad;
      for (std::size_t i = 0; i < flats.size(); ++i) copies[i].copy_(flats[i]);
    };
    for (const at::Tensor& flat : flats) copies.push_back(at::empty_like(flat));

    fsdp::CheckpointOptions options;
    options.folder = folder_ / "checkpoints";
    options.keep = 1;
    fsdp::Checkpointer checkpointer(model, optimizer, options);
    fsdp::CheckpointState state;
    const auto next = [&] {
      checkpointer.wait_for_removal();
      together_.arrive_and_wait();
      ++state.step;
      if (rank == 0) ::sync();
    };
    const auto keep = [rank](double& number, double measured) {
      if (rank == 0) number = measured;
    };
    next();
    const auto first = checkpointer.save(state);
    if (rank == 0) saved_bytes_ = first.bytes;
    next();
    keep(save_s_, timed(rank, [&] { checkpointer.save(state); }));
    keep(removal_s_, timed(rank, [&] { checkpointer.wait_for_removal(); }));
    next();
    keep(plain_s_,
         timed(rank, [&] { write_plainly(folder_ / ("plain-" + std::to_string(rank)), first.bytes / ranks_); }));
    next();
    checkpointer.begin_save(state);
    checkpointer.wait();
    std::vector<double> blocked, copied, ratios, beside;
    for (int pair = 0; pair < kPairs; ++pair) {
      next();
      copied.push_back(timed(rank, copy));
      const auto start = Clock::now();
      blocked.push_back(timed(rank, [&] { checkpointer.begin_save(state); }));
      checkpointer.wait();
      together_.arrive_and_wait();
      beside.push_back(std::chrono::duration<double>(Clock::now() - start).count());
      ratios.push_back(blocked.back() / copied.back());
    }
    keep(blocked_s_, median(blocked));
    keep(copy_s_, median(copied));
    keep(blocked_copies_, median(ratios));
    keep(beside_s_, median(beside));
  }

  const fs::path folder_;
  const int ranks_;
  const std::int64_t bytes_;
  std::barrier<> together_;
  std::vector<double> ends_;
  std::int64_t saved_bytes_ = 0;
  double save_s_ = 0, removal_s_ = 0, plain_s_ = 0, blocked_s_ = 0, copy_s_ = 0, blocked_copies_ = 0, beside_s_ = 0;
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) {
    std::fprintf(stderr, "usage: checkpoint_speed FOLDER RANKS MIB\n");
    return 2;
  }
  try {
    Bench(arguments[1], std::atoi(arguments[2]), std::atoll(arguments[3]) << 20).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "checkpoint_speed: %s\n", error.what());
    return 1;
  }
  return 0;
}
