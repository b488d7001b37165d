#include "tests/worker/trainer_ranks.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ATen/Parallel.h>

#include <exception>
#include <filesystem>
#include <thread>

#include "agent/rank/signals.h"

namespace worker::testing {

std::function<void(const std::string&)> before_rename;
std::function<void(const std::string&)> before_sync;

}  // namespace worker::testing

/// Replaces the C library's rename, which std::filesystem calls.
extern "C" int rename(const char* from, const char* to) noexcept {
  if (worker::testing::before_rename) worker::testing::before_rename(to);
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
extern "C" int fsync(int fd) {
  if (worker::testing::before_sync) {
    worker::testing::before_sync(std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd)));
  }
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

namespace worker::testing {
namespace {

/// `"key":value` with a leading comma, unless `given` has the key.
std::string unless(const std::string& given, const std::string& key, const std::string& value) {
  return given.find("\"" + key + "\"") == std::string::npos ? ",\"" + key + "\":" + value : "";
}

}  // namespace

RunConfig run_of(const TemporaryFolder& folder, const std::string& train, const std::string& fsdp,
                 const std::string& checkpoints) {
  return parse_run_config(
      R"({"format":1,"name":"test","model":{"hidden_size":32,"intermediate_size":48,"num_hidden_layers":3,
      "num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":64},
      "data":{"source":"fixture","sequence_length":32,"cache_folder":")" +
      (folder / "cache").native() + R"("},"train":{"learning_rate":0.003)" + unless(train, "batch_size", "8") +
      unless(train, "warmup_steps", "0") + unless(train, "seed", "0") + unless(train, "validation_every_steps", "0") +
      train + R"(},"fsdp":{"prefetch":true)" + fsdp + R"(},"checkpoint":{"every_steps":0,"folder":")" +
      (folder / checkpoints).native() + "\"}}");
}

std::vector<Outcome> train(const RunConfig& config, std::vector<Listener>& listeners, std::int64_t attempt,
                           const MakeRecipe& make_recipe) {
  agent::rank::forget_stop_signals();
  std::promise<agent::rank::Endpoint> meeting;
  const std::shared_future<agent::rank::Endpoint> where = meeting.get_future().share();
  const int world_size = static_cast<int>(listeners.size());
  std::vector<Outcome> outcomes(listeners.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);  // more threads only wait for each other on a busy machine
      auto& listener = listeners[static_cast<std::size_t>(rank)];
      listener.meeting = &meeting;
      listener.where = where;
      agent::rank::RankEnvironment environment;
      environment.rank = environment.local_rank = rank;
      environment.world_size = environment.local_world_size = world_size;
      environment.attempt = attempt;
      try {
        outcomes[static_cast<std::size_t>(rank)] = Trainer(config, environment, listener, make_recipe).run();
      } catch (const std::exception& error) {
        if (!listener.on_failure) throw;
        listener.on_failure(error.what());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return outcomes;
}

std::vector<std::int64_t> numbers(const std::vector<agent::rank::StepReport>& reports) {
  std::vector<std::int64_t> out;
  for (const auto& report : reports) out.push_back(report.step);
  return out;
}

}  // namespace worker::testing
