// Goal: a save beside the training saves what the models were when it began, in the training's way for the copy alone.
// Method: the small model on 1 to 3 ranks, and saves that are held in the middle while the ranks train on.
#include <gmock/gmock.h>

#include <future>
#include <mutex>
#include <set>
#include <thread>

#include "tests/fsdp/checkpoint_fixture.h"
#include "tests/fsdp/error_of.h"

namespace {

using fsdp::Checkpointer;
using fsdp::CheckpointOptions;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class CheckpointBeside : public Checkpoint {
 protected:
  /// Holds each commit until let_go() was called.
  CheckpointOptions held() {
    CheckpointOptions with = options();
    with.may_commit = [this] {
      gone_.wait();
      return std::string();
    };
    return with;
  }
  void let_go() { go_.set_value(); }

 private:
  std::promise<void> go_;
  const std::shared_future<void> gone_ = go_.get_future().share();
};

// Goal: steps that ranks make while the save is under way do not change it, and have the bits that they have without a
// save.
TEST_F(CheckpointBeside, TheTrainingHoldsWhatTheModelWasWhenItBegan) {
  constexpr int kSaved = 3, kLast = 9;
  std::vector<double> losses;
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    for (int step = 0; step < kLast; ++step) {
      const double loss = trainer.step(step);
      if (mesh.rank() == 0) losses.push_back(loss);
    }
  });
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    Checkpointer checkpointer(trainer.sharded, *trainer.optimizer, held());
    for (int step = 0; step < kSaved; ++step) trainer.step(step);
    auto state = state_of(kSaved);
    state.rank_tensors["mine"] = at::full({3}, mesh.rank(), at::kByte);
    checkpointer.begin_save(state);
    state.rank_tensors["mine"].fill_(77);
    for (int step = kSaved; step < kLast; ++step) EXPECT_EQ(trainer.step(step), losses[step]) << "step " << step;
    EXPECT_FALSE(checkpointer.poll());
    EXPECT_FALSE(fs::exists(step_path(kSaved)));
    mesh.control().barrier();
    if (mesh.rank() == 0) let_go();
    const auto saved = checkpointer.wait();
    ASSERT_TRUE(saved);
    EXPECT_EQ(saved->path, step_path(kSaved));
    EXPECT_TRUE(fs::exists(step_path(kSaved)));
    EXPECT_FALSE(checkpointer.wait()) << "an outcome is told once";
  });
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh, {}, /*seed=*/99);
    const auto loaded = Checkpointer(trainer.sharded, *trainer.optimizer, options()).load_latest();
    ASSERT_TRUE(loaded);
    EXPECT_TRUE(at::equal(loaded->state.rank_tensors.at("mine"), at::full({3}, mesh.rank(), at::kByte)));
    EXPECT_EQ(trainer.optimizer->steps(), kSaved);
    for (int step = kSaved; step < kLast; ++step) EXPECT_EQ(trainer.step(step), losses[step]) << "step " << step;
  });
}

TEST_F(CheckpointBeside, TheTrainingLeavesItsCommunicatorsAlone) {
  run_ranks(3, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    Checkpointer checkpointer(trainer.sharded, *trainer.optimizer, options());
    for (int step = 1; step <= 2; ++step) {
      const std::int64_t control = mesh.control().collectives(), shard = mesh.shard().collectives();
      checkpointer.begin_save(state_of(step));
      EXPECT_TRUE(checkpointer.wait());
      EXPECT_EQ(mesh.control().collectives(), control);
      EXPECT_EQ(mesh.shard().collectives(), shard);
    }
  });
  EXPECT_EQ(load(2).first, 2);
}

TEST_F(CheckpointBeside, TheTrainingTellsItsEndOnceToThosePolling) {
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    Checkpointer checkpointer(trainer.sharded, *trainer.optimizer, options());
    EXPECT_FALSE(checkpointer.poll()) << "there is none";
    checkpointer.begin_save(state_of(1));
    std::optional<fsdp::SavedCheckpoint> saved;
    while (!saved) saved = checkpointer.poll();
    EXPECT_EQ(saved->path, step_path(1));
    EXPECT_FALSE(checkpointer.poll());
    EXPECT_FALSE(checkpointer.wait());
  });
}

TEST_F(CheckpointBeside, TheTrainingTellsItsFailureAtTheNextCallThatIsCollective) {
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    CheckpointOptions fenced = options();
    std::atomic<bool> over = false, refuses = true;
    fenced.may_commit = [&] { return refuses ? std::string("attempt 2 has begun") : std::string(); };
    fenced.commit_over = [&] { over = true; };
    Checkpointer checkpointer(trainer.sharded, *trainer.optimizer, fenced);
    checkpointer.begin_save(state_of(1));
    if (mesh.rank() == 0)
      while (!over) std::this_thread::yield();
    EXPECT_FALSE(checkpointer.poll());
    EXPECT_THROW(checkpointer.wait(), fsdp::CheckpointFenced);
    EXPECT_FALSE(checkpointer.wait());
    checkpointer.begin_save(state_of(2));
    EXPECT_THAT(error_of([&] { checkpointer.begin_save(state_of(3)); }),
                HasSubstr("checkpoint of step 2 not saved: attempt 2 has begun"));
    refuses = false;
    EXPECT_FALSE(checkpointer.wait()) << "the save of step 3 was not begun";
    checkpointer.begin_save(state_of(4));
    checkpointer.save(state_of(5));
  });
  EXPECT_THAT(names_in(options().folder), ElementsAre("step-00000004", "step-00000005"));
}

TEST_F(CheckpointBeside, TheTrainingFailsOnAllRanksWhenOneCannotTakeItsPart) {
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    Checkpointer checkpointer(trainer.sharded, *trainer.optimizer, options());
    auto state = state_of(1);
    if (mesh.rank() == 1) state.rank_tensors["undefined"] = at::Tensor();
    checkpointer.begin_save(state);
    EXPECT_THAT(error_of([&] { checkpointer.wait(); }), HasSubstr("checkpoint of step 1 not saved: rank 1: "));
    checkpointer.begin_save(state_of(2));
  });
  EXPECT_EQ(load(1).first, 2) << "the destructor waited for it";
}

TEST_F(CheckpointBeside, TheTrainingIsFencedAndPrunedOnItsOwnThread) {
  save_steps(2, {1});
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    CheckpointOptions one = options();
    one.keep = 1;
    std::mutex mutex;
    std::vector<std::string> calls;
    std::set<std::thread::id> threads;
    const auto called = [&](const char* what) {
      const std::lock_guard<std::mutex> lock(mutex);
      calls.push_back(what);
      threads.insert(std::this_thread::get_id());
    };
    one.may_write = [&] {
      called("write");
      return std::string();
    };
    one.may_commit = [&] {
      called("commit");
      return std::string();
    };
    one.commit_over = [&] { called("over"); };
    Checkpointer checkpointer(trainer.sharded, *trainer.optimizer, one);
    checkpointer.begin_save(state_of(2));
    EXPECT_TRUE(checkpointer.wait());
    if (mesh.rank() != 0) return;
    EXPECT_THAT(calls, ElementsAre("write", "commit", "write", "over", "write"));
    EXPECT_EQ(threads.size(), 1u);
    EXPECT_EQ(threads.count(std::this_thread::get_id()), 0u);
    EXPECT_THAT(names_in(one.folder), ElementsAre("step-00000002"));
  });
}

TEST_F(CheckpointBeside, TheTrainingKeepsMemoryForItsCopies) {
  run_ranks(4,
            [&](fsdp::DeviceMesh& mesh) {
              Trainer trainer(mesh);
              Checkpointer checkpointer(trainer.sharded, *trainer.optimizer, options());
              EXPECT_EQ(checkpointer.snapshot_bytes(), 0);
              std::int64_t want = 0;
              for (const auto& unit : trainer.sharded.units())
                for (const auto& segment : unit->segments())
                  want += segment->layout().chunk() * 4 * (segment->key().has_master ? 3 : 1);
              for (int step = 1; step <= 2; ++step) {
                checkpointer.begin_save(state_of(step));
                EXPECT_EQ(checkpointer.snapshot_bytes(), mesh.replicate()->rank() == 0 ? want : 0);
              }
            },
            std::chrono::seconds(30), c10::kCPU, {{"replicate", 2}, {"shard", 2}});
  EXPECT_EQ(load(4).first, 2);
}

}  // namespace
