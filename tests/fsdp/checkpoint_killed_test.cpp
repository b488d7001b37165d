// Goal: a process that is killed at any system call of a save leaves a newest valid checkpoint: the one before, or the
// new one. Nothing torn has a checkpoint's name, and the next attempt removes what is left over.
// Method: a forked process saves under ptrace, and is killed at its n-th system call, for each n until one ends alive.
#include <errno.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "fsdp/files/checkpoint.h"
#include "fsdp/optim/optimizers.h"
#include "tests/fsdp/temporary_folder.h"
#include "tests/fsdp/thread_ranks.h"

namespace {

using ::testing::Each;
using ::testing::IsEmpty;
using ::testing::StartsWith;
namespace fs = std::filesystem;

constexpr int kMostCalls = 2000;

/// The value in a checkpoint, which tells the step and the attempt that saved it.
double value_of(std::int64_t step, std::int64_t attempt) {
  return static_cast<double>(10 * step + attempt);
}

struct OneValue : torch::nn::Module {
  OneValue(std::int64_t numel, double value) : weight(register_parameter("weight", at::full({numel}, value))) {}
  at::Tensor weight;
};

struct Saving {
  std::string name;
  int world_size = 1;
  std::int64_t numel = 1000;
  std::int64_t before = 0;  // the step of the checkpoint that is there; 0: there is none
  std::int64_t step = 2;
  int keep = 2;
  bool beside_training = false;
};

void save(const Saving& saving, const fs::path& folder, std::int64_t step, std::int64_t attempt,
          const std::function<void()>& now) {
  run_thread_ranks(saving.world_size, [&](fsdp::DeviceMesh& mesh) {
    const auto module = std::make_shared<OneValue>(saving.numel, value_of(step, attempt));
    fsdp::ShardedModel model(module, mesh);
    model.fully_shard(module);
    fsdp::AdamW optimizer(model);
    fsdp::CheckpointOptions options;
    options.folder = folder;
    options.attempt = attempt;
    options.keep = saving.keep;
    fsdp::Checkpointer checkpointer(model, optimizer, options);
    fsdp::CheckpointState state;
    state.step = step;
    mesh.control().barrier();
    if (mesh.rank() == 0) now();
    if (saving.beside_training) {
      checkpointer.begin_save(state);
      checkpointer.wait();
    } else {
      checkpointer.save(state);
    }
  });
}

/// A system call of the saver where the counting begins. It changes nothing, and nothing else calls it.
void mark() {
  ::syscall(SYS_personality, 0xffffffffUL);
}

/// Runs `body` in a process of its own, and kills it when it is about to make its n-th system call after mark(). Waits
/// for locks do not count. Returns whether it was killed; otherwise it has ended well.
bool killed_at(int n, const std::function<void()>& body) {
  const ::pid_t process = ::fork();
  if (process == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(3);
    ::raise(SIGSTOP);
    try {
      body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      ::_exit(2);
    }
    ::_exit(0);
  }
  int calls = 0;
  bool counts = false, begun = false;
  while (true) {
    int status = 0;
    const ::pid_t who = ::waitpid(-1, &status, __WALL);
    if (who < 0) {
      if (errno == EINTR) continue;
      ADD_FAILURE() << "waitpid: " << std::strerror(errno);
      return false;
    }
    if (WIFSIGNALED(status) && who == process) return true;
    if (WIFEXITED(status) && who == process) {
      EXPECT_EQ(WEXITSTATUS(status), 0) << "the saver failed";
      return false;
    }
    if (!WIFSTOPPED(status)) continue;
    int signal = WSTOPSIG(status);
    if (!begun) {
      begun = true;
      ::ptrace(PTRACE_SETOPTIONS, process, nullptr, PTRACE_O_TRACECLONE | PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
      signal = 0;
    } else if (signal == (SIGTRAP | 0x80)) {
      signal = 0;
      __ptrace_syscall_info call{};
      ::ptrace(PTRACE_GET_SYSCALL_INFO, who, sizeof call, &call);
      if (call.op == PTRACE_SYSCALL_INFO_ENTRY) {
        if (counts && call.entry.nr != SYS_futex && ++calls == n) {
          ::kill(process, SIGKILL);
          continue;
        }
        if (call.entry.nr == SYS_personality) counts = true;
      }
    } else if (signal == SIGTRAP || signal == SIGSTOP) {
      signal = 0;  // a new thread
    }
    ::ptrace(PTRACE_SYSCALL, who, nullptr, signal);
  }
}

class KilledSave : public ::testing::TestWithParam<Saving> {
 protected:
  /// Loads the newest checkpoint on one rank, and compares its values.
  static void expect_loads(const fs::path& folder, std::int64_t numel, std::int64_t step, std::int64_t attempt) {
    fsdp::DeviceMesh mesh(nullptr, 0, 1);
    const auto module = std::make_shared<OneValue>(numel, -1);
    fsdp::ShardedModel model(module, mesh);
    model.fully_shard(module);
    fsdp::AdamW optimizer(model);
    fsdp::CheckpointOptions options;
    options.folder = folder;
    options.attempt = 3;
    fsdp::Checkpointer next(model, optimizer, options);
    next.remove_stale();
    std::vector<std::string> ignored;
    const auto loaded = next.load_latest(&ignored);
    EXPECT_THAT(ignored, IsEmpty());
    ASSERT_EQ(loaded.has_value(), step > 0);
    if (!loaded) return;
    EXPECT_EQ(loaded->state.step, step);
    EXPECT_TRUE(at::equal(module->weight, at::full({numel}, value_of(step, attempt))));
  }
  static std::vector<std::string> names_in(const fs::path& folder) {
    std::vector<std::string> names;
    if (!fs::exists(folder)) return names;
    for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
    return names;
  }
};

TEST_P(KilledSave, LeavesTheNewestValidCheckpoint) {
  const Saving saving = GetParam();
  at::set_num_threads(1);  // fork() copies the calling thread alone
  // Memory takes the many small files faster than a disk, and what a kill leaves is the same.
  const bool large = saving.numel > 100'000;
  const TemporaryFolder work(large ? fs::temp_directory_path() : test::memory_folder());
  const fs::path template_folder = work / "before", checkpoints = work / "checkpoints";
  if (saving.before > 0) save(saving, template_folder, saving.before, 1, [] {});
  int old_ones = 0, new_ones = 0, n = 1;
  for (bool alive = false; !alive && n < kMostCalls && !HasFailure(); ++n) {
    SCOPED_TRACE("killed at system call " + std::to_string(n));
    fs::remove_all(checkpoints);
    if (saving.before > 0) fs::copy(template_folder, checkpoints, fs::copy_options::recursive);
    alive = !killed_at(n, [&] {
      at::set_num_threads(1);  // after a fork LibTorch makes its pool of threads anew, which one thread must do alone
      save(saving, checkpoints, saving.step, 2, mark);
    });
    const fsdp::CheckpointList list = fsdp::list_checkpoints(checkpoints);
    EXPECT_THAT(list.ignored, IsEmpty()) << "nothing torn has a checkpoint's name";
    for (const auto& info : list.valid) fsdp::validate(info);
    const std::int64_t newest = list.valid.empty() ? 0 : list.valid.front().step;
    const std::int64_t attempt = list.valid.empty() ? 0 : list.valid.front().attempt;
    const bool is_new = newest == saving.step && attempt == 2;
    EXPECT_TRUE(is_new || newest == saving.before) << newest;
    EXPECT_TRUE(is_new || !alive);
    expect_loads(checkpoints, saving.numel, newest, attempt);
    EXPECT_THAT(names_in(checkpoints), Each(StartsWith("step-"))) << "the next attempt has removed the rest";
    ++(is_new ? new_ones : old_ones);
  }
  std::printf("%s: killed at %d system calls, %d times before the new checkpoint was there\n", saving.name.c_str(),
              n - 2, old_ones);
  EXPECT_GE(n, 25) << "system calls of a save";
  EXPECT_GE(new_ones, 3) << "kills after the commit";
  EXPECT_GE(old_ones, 10) << "kills before it";
}

INSTANTIATE_TEST_SUITE_P(
    Each, KilledSave,
    ::testing::Values(Saving{.name = "TheFirst"}, Saving{.name = "TheSecond", .before = 1},
                      Saving{.name = "ThatRemovesTheOneBefore", .before = 1, .keep = 1},
                      Saving{.name = "ThatReplacesItsStep", .before = 2},
                      Saving{.name = "OfTwoRanks", .world_size = 2, .before = 1, .keep = 1},
                      Saving{
                          .name = "BesideTraining", .world_size = 2, .before = 1, .keep = 1, .beside_training = true},
                      Saving{.name = "AroundThePageCache", .numel = 400'000, .before = 1, .keep = 1}),
    [](const auto& param) { return param.param.name; });

}  // namespace
