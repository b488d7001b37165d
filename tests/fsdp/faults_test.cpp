// Goal: a collective that fails or is late changes no weight in silence, and the engine goes on after abandon_step().
// Method: ranks as threads, over a transport in which each start and each wait of a step fails once, on every rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <random>

#include "tests/fsdp/odd_transports.h"
#include "tests/fsdp/small_model.h"
#include "tests/fsdp/thread_ranks.h"

namespace {

using ::testing::HasSubstr;

const std::vector<fsdp::MeshAxis> kAllSharded = {}, kWithReplicas = {{"replicate", 2}, {"shard", 2}};

/// Which of a rank's starts and waits throws; those before and after work.
class FaultPlan {
 public:
  void fail_at(int event) {
    left_ = event;
    hit_.clear();
  }
  void before(const std::string& what) {
    if (left_-- != 0) return;
    hit_ = what;
    TORCH_CHECK(false, "injected: ", what);
  }
  const std::string& hit() const { return hit_; }

 private:
  int left_ = -1;
  std::string hit_;
};

std::map<std::string, at::Tensor> state_after(int steps, const std::vector<fsdp::MeshAxis>& axes, int world_size) {
  std::map<std::string, at::Tensor> state;
  std::mutex mutex;
  fsdp::MeshOptions options;
  options.axes = axes;
  run_thread_ranks(
      world_size,
      [&](fsdp::DeviceMesh& mesh) {
        Trainer trainer(mesh);
        for (int step = 0; step < steps; ++step) trainer.step(step);
        auto mine = trainer.sharded.gather_full_state();
        const std::lock_guard<std::mutex> lock(mutex);
        state = std::move(mine);
      },
      std::chrono::seconds(20), options);
  return state;
}

/// One step of which the collective with each number fails, until a step has fewer collectives than that.
void expect_each_fault_is_told_and_survived(const std::vector<fsdp::MeshAxis>& axes, int world_size) {
  const auto want = state_after(3, axes, world_size);
  fsdp::MeshOptions options;
  options.axes = axes;
  std::atomic<int> faults = 0;
  std::vector<FaultPlan> plans(world_size);
  std::atomic<int> joined = 0;
  static thread_local FaultPlan* mine = nullptr;
  run_thread_ranks(
      world_size,
      [&](fsdp::DeviceMesh& mesh) {
        for (int event = 0;; ++event) {
          Trainer trainer(mesh);
          trainer.step(0);
          trainer.step(1);
          mine->fail_at(event);
          std::string error;
          try {
            trainer.accumulate(tokens_of(2));
            trainer.sharded.complete_gradients("the test");
          } catch (const c10::Error& e) {
            error = e.what();
          }
          const std::string hit = mine->hit();
          mine->fail_at(-1);
          if (hit.empty()) {
            EXPECT_EQ(error, "");
            break;
          }
          EXPECT_THAT(error, HasSubstr("injected: " + hit));
          ++faults;
          trainer.sharded.abandon_step();
          trainer.step(2);
          for (const auto& [name, tensor] : trainer.sharded.gather_full_state())
            EXPECT_TRUE(at::equal(tensor, want.at(name))) << name << " differs after a failure in " << hit;
        }
      },
      std::chrono::seconds(20), options,
      [&](std::unique_ptr<fsdp::Transport> inner, const fsdp::MeshGroup&) -> std::unique_ptr<fsdp::Transport> {
        // Each rank connects in its own thread.
        if (mine == nullptr) mine = &plans[joined++];
        return std::make_unique<WatchedTransport>(std::move(inner), [plan = mine](const auto& w) { plan->before(w); });
      });
  EXPECT_GE(faults, world_size * 20) << "a step has some twenty starts and waits";
}

TEST(Faults, OfEachCollectiveAreToldAndTheNextStepIsRight) {
  expect_each_fault_is_told_and_survived(kAllSharded, 2);
}

TEST(Faults, OfEachCollectiveWithReplicasToo) {
  expect_each_fault_is_told_and_survived(kWithReplicas, 4);
}

TEST(Delays, ChangeNoBit) {
  for (const auto& axes : {kAllSharded, kWithReplicas}) {
    const auto want = state_after(3, axes, 4);
    fsdp::MeshOptions options;
    options.axes = axes;
    std::atomic<unsigned> seed = 1;
    run_thread_ranks(
        4,
        [&](fsdp::DeviceMesh& mesh) {
          Trainer trainer(mesh);
          for (int step = 0; step < 3; ++step) trainer.step(step);
          for (const auto& [name, tensor] : trainer.sharded.gather_full_state())
            EXPECT_TRUE(at::equal(tensor, want.at(name))) << name;
        },
        std::chrono::seconds(20), options,
        [&](std::unique_ptr<fsdp::Transport> inner, const fsdp::MeshGroup&) -> std::unique_ptr<fsdp::Transport> {
          const auto random = std::make_shared<std::minstd_rand>(seed++);
          return std::make_unique<WatchedTransport>(std::move(inner), [random](const auto&) {
            std::this_thread::sleep_for(std::chrono::microseconds((*random)() % 800));
          });
        });
  }
}

}  // namespace
