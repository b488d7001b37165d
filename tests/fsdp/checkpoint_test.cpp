// Goal: a checkpoint is either whole or absent, and a resumed run equals one that was never interrupted.
// Method: the small model on 1 to 4 ranks as threads, with real files that the tests damage.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include <fstream>
#include <limits>
#include <optional>

#include "error_of.h"
#include "fsdp/checkpoint.h"
#include "fsdp/random.h"
#include "ranks.h"
#include "small_model.h"
#include "temporary_folder.h"

namespace {

/// False imitates a network file system, which cannot exchange two names in one step.
std::atomic<bool> can_exchange = true;

}  // namespace

/// Replaces the C library's renameat2.
extern "C" int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  if ((flags & RENAME_EXCHANGE) != 0 && !can_exchange) {
    errno = EINVAL;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}

namespace {

using fsdp::Checkpointer;
using fsdp::CheckpointError;
using fsdp::CheckpointOptions;
using fsdp::CheckpointState;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Le;
namespace fs = std::filesystem;

CheckpointState state_of(std::int64_t step) {
  CheckpointState state;
  state.step = step;
  state.extra["data_position"] = step * kBatch;
  state.extra["learning_rate"] = 0.1 / 3;
  return state;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

void flip_byte(const fs::path& path, std::int64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const char byte = static_cast<char>(file.get() ^ 1);
  file.seekp(at);
  file.put(byte);
}

class Checkpoint : public ::testing::Test {
 protected:
  CheckpointOptions options(std::int64_t attempt = 1) const {
    CheckpointOptions options;
    options.folder = folder_.path() / "checkpoints";
    options.attempt = attempt;
    return options;
  }
  fs::path step_path(std::int64_t step) const {
    char name[32];
    std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(step));
    return folder_.path() / "checkpoints" / name;
  }
  /// Trains `world_size` ranks and saves after each of `steps`.
  void save_steps(int world_size, std::vector<std::int64_t> steps) const {
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      Checkpointer checkpointer(trainer.sharded, *trainer.optimizer, options());
      for (std::int64_t step = 1; step <= steps.back(); ++step) {
        trainer.step(step);
        if (std::find(steps.begin(), steps.end(), step) != steps.end()) checkpointer.save(state_of(step));
      }
    });
  }
  /// Loads with `world_size` ranks. Returns the step, or -1, and the ignored checkpoints.
  std::pair<std::int64_t, std::vector<std::string>> load(int world_size) const {
    std::pair<std::int64_t, std::vector<std::string>> result{-1, {}};
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      std::vector<std::string> ignored;
      const auto loaded = Checkpointer(trainer.sharded, *trainer.optimizer, options()).load_latest(&ignored);
      if (mesh.rank() == 0) result = {loaded ? loaded->state.step : -1, ignored};
    });
    return result;
  }

  TemporaryFolder folder_;
};

// Also in bf16, because a checkpoint holds the fp32 master and not the rounded copy of the computation.
TEST_F(Checkpoint, ResumeBitForBit) {
  for (const auto& [world_size, dtype] : {std::pair{1, at::kFloat},
                                          {2, at::kFloat},
                                          {3, at::kFloat},
                                          {4, at::kFloat},
                                          {1, at::kBFloat16},
                                          {3, at::kBFloat16}}) {
    SCOPED_TRACE(c10::toString(dtype));
    fs::remove_all(options().folder);
    fsdp::ShardOptions sharding;
    sharding.param_dtype = dtype;

    std::vector<double> losses;
    std::map<std::string, at::Tensor> uninterrupted;
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh, sharding);
      Checkpointer checkpointer(trainer.sharded, *trainer.optimizer, options());
      for (int step = 1; step <= 10; ++step) {
        const double loss = trainer.step(step);
        if (mesh.rank() == 0) losses.push_back(loss);
        CheckpointState state = state_of(step);
        state.rank_tensors["random_state"] = at::full({3}, mesh.rank(), at::kByte);
        if (step == 5) checkpointer.save(state);
      }
      auto full = trainer.sharded.gather_full_state(/*rank_zero_only=*/true);
      if (mesh.rank() == 0) uninterrupted = std::move(full);
    });
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh, sharding, /*seed=*/99);
      Checkpointer checkpointer(trainer.sharded, *trainer.optimizer, options(2));
      const auto loaded = checkpointer.load_latest();
      ASSERT_TRUE(loaded);
      EXPECT_EQ(loaded->state.step, 5);
      EXPECT_EQ(loaded->state.extra, state_of(5).extra);
      EXPECT_TRUE(at::equal(loaded->state.rank_tensors.at("random_state"), at::full({3}, mesh.rank(), at::kByte)));
      EXPECT_EQ(trainer.optimizer->steps(), 5);
      for (int step = 6; step <= 10; ++step) EXPECT_EQ(trainer.step(step), losses[step - 1]) << "step " << step;
      for (const auto& [name, tensor] : trainer.sharded.gather_full_state())
        EXPECT_TRUE(at::equal(tensor, uninterrupted.at(name))) << name;
    });
  }
}

TEST_F(Checkpoint, LoadAtEveryOtherWorldSize) {
  for (const int world_size : kWorldSizes) {
    fs::remove_all(options().folder);

    std::vector<double> losses;
    std::map<std::string, at::Tensor> saved;
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      for (int step = 1; step <= 5; ++step) trainer.step(step);
      Checkpointer(trainer.sharded, *trainer.optimizer, options()).save(state_of(5));
      auto full = trainer.sharded.gather_full_state(true);
      for (int step = 6; step <= 8; ++step) {
        const double loss = trainer.step(step);
        if (mesh.rank() == 0) losses.push_back(loss);
      }
      if (mesh.rank() == 0) saved = std::move(full);
    });
    for (const int other : kWorldSizes) {
      run_ranks(other, [&](fsdp::DeviceMesh& mesh) {
        Trainer trainer(mesh, {}, /*seed=*/99);
        const auto loaded = Checkpointer(trainer.sharded, *trainer.optimizer, options()).load_latest();
        ASSERT_TRUE(loaded);
        EXPECT_EQ(loaded->world_size, world_size);
        for (const auto& [name, tensor] : trainer.sharded.gather_full_state())
          EXPECT_TRUE(at::equal(tensor, saved.at(name))) << name;
        for (int step = 6; step <= 8; ++step) EXPECT_THAT(relative(trainer.step(step), losses[step - 6]), Le(1e-5));
      });
    }
  }
}

// Goal: parameters that have had fewer updates than others continue with their own step count, in other units too.
TEST_F(Checkpoint, HoldsTheStepsOfEachParameter) {
  constexpr int kSaved = 4, kLast = 9;
  std::vector<double> losses;
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    const auto all = trainer.model->blocks;
    for (int step = 0; step < kLast; ++step) {
      choose_blocks(*trainer.model, all, step);
      const double loss = trainer.step(step);
      if (mesh.rank() == 0) losses.push_back(loss);
      if (step + 1 == kSaved) Checkpointer(trainer.sharded, *trainer.optimizer, options()).save(state_of(kSaved));
    }
  });
  const auto manifest = fsdp::latest_valid(options().folder)->manifest;
  EXPECT_EQ(manifest.at("tensors").at("block1.up").at("steps").as_int(), kSaved);
  EXPECT_EQ(manifest.at("tensors").at("block2.up").at("steps").as_int(), kSaved - 2);
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh, {}, /*seed=*/99);
    const auto all = trainer.model->blocks;
    ASSERT_TRUE(Checkpointer(trainer.sharded, *trainer.optimizer, options(2)).load_latest());
    EXPECT_EQ(trainer.optimizer->steps(), kSaved);
    for (int step = kSaved; step < kLast; ++step) {
      choose_blocks(*trainer.model, all, step);
      EXPECT_EQ(trainer.step(step), losses[step]) << "step " << step;
    }
  });
  // A single unit for the whole model has a gradient in every step. So the result may differ once the block is left
  // out.
  run_ranks(3, [&](fsdp::DeviceMesh& mesh) {
    const auto model = make_model(99);
    fsdp::ShardedModel sharded(model, mesh);
    model->wrap = wrapper(sharded.fully_shard(model));
    fsdp::AdamW optimizer(sharded);
    ASSERT_TRUE(Checkpointer(sharded, optimizer, options(2)).load_latest());
    const at::Tensor loss = model->forward(part_of(tokens_of(kSaved), mesh.rank(), 3));
    loss.backward();
    optimizer.step(1e-2);
    sharded.zero_grad();
    const at::NoGradGuard no_grad;
    choose_blocks(*model, model->blocks, kSaved + 1);
    const double next = model->forward(part_of(tokens_of(kSaved + 1), mesh.rank(), 3)).item<double>();
    EXPECT_THAT(relative(mesh.shard().all_reduce(next) / 3, losses[kSaved + 1]), Le(1e-5));
  });
}

TEST_F(Checkpoint, WithoutStepsOfEachParameterGoesByThoseOfTheOptimizer) {
  save_steps(2, {3});
  fsdp::Json manifest = fsdp::latest_valid(options().folder)->manifest;
  for (auto& [name, tensor] : manifest["tensors"].as_object()) tensor.as_object().erase("steps");
  std::ofstream(step_path(3) / "manifest.json") << manifest.dump();
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    ASSERT_TRUE(Checkpointer(trainer.sharded, *trainer.optimizer, options()).load_latest());
    for (const auto& segment : trainer.sharded.units()[1]->segments())
      for (const auto& parameter : segment->layout().parameters())
        EXPECT_EQ(trainer.optimizer->steps(1, parameter.index), segment->key().trainable ? 3 : 0) << parameter.name;
  });
}

TEST_F(Checkpoint, AmountsToItsFilesAndAManifest) {
  save_steps(2, {3});
  EXPECT_THAT(names_in(step_path(3)),
              ElementsAre("manifest.json", "rank-00000-of-00002.safetensors", "rank-00001-of-00002.safetensors"));
  EXPECT_THAT(names_in(options().folder), ElementsAre("step-00000003"));
  const auto info = fsdp::latest_valid(options().folder);
  ASSERT_TRUE(info);
  EXPECT_EQ(info->step, 3);
  EXPECT_EQ(info->world_size, 2);
  EXPECT_EQ(info->attempt, 1);
  EXPECT_EQ(info->manifest.at("optimizer").at("steps").as_int(), 3);
  const fsdp::Json& up = info->manifest.at("tensors").at("block0.up");
  EXPECT_EQ(up.at("unit").as_string(), "block0");
  EXPECT_EQ(up.at("shape").dump(), "[29,13]");
}

TEST_F(Checkpoint, IsIgnoredWhenTornAndTheOneBeforeIsUsed) {
  save_steps(2, {1, 2, 3});
  fs::remove(step_path(3) / "manifest.json");
  EXPECT_EQ(load(2).first, 2);
  EXPECT_THAT(load(2).second, ElementsAre("step-00000003: no manifest.json"));

  fs::resize_file(step_path(2) / "rank-00001-of-00002.safetensors", 100);
  const auto [step, ignored] = load(3);
  EXPECT_EQ(step, 1);
  ASSERT_EQ(ignored.size(), 2u);
  EXPECT_THAT(ignored[1], HasSubstr("step-00000002: rank-00001-of-00002.safetensors has 100 bytes"));

  std::ofstream(step_path(1) / "manifest.json") << "{\"format\":";
  EXPECT_EQ(load(2).first, -1);
  EXPECT_THAT(load(2).second[2], HasSubstr("step-00000001: JSON, byte"));
}

TEST_F(Checkpoint, WithOneFlippedBitIsPassedOverByAllRanks) {
  save_steps(2, {1, 2});
  const fs::path file = step_path(2) / "rank-00001-of-00002.safetensors";
  flip_byte(file, static_cast<std::int64_t>(fs::file_size(file)) - 5);
  const auto [step, ignored] = load(2);
  EXPECT_EQ(step, 1);
  EXPECT_THAT(ignored, ElementsAre("step-00000002: rank 1: rank-00001-of-00002.safetensors is corrupt: its checksum is "
                                   "not the manifest's"));
}

TEST_F(Checkpoint, OfNobodyIsNone) {
  EXPECT_EQ(load(2).first, -1);
  EXPECT_FALSE(fsdp::latest_valid(options().folder));
  for (const char* other : {"step-0000x", "step-5", "step-\xff-step-00000006"})
    fs::create_directories(options().folder / other);
  EXPECT_EQ(load(2).first, -1);
  EXPECT_THAT(load(2).second, ElementsAre()) << "these are no checkpoints of ours";
  fs::create_directories(options().folder / "step-00000004");
  EXPECT_EQ(load(2).first, -1);
  EXPECT_THAT(load(2).second, ElementsAre("step-00000004: no manifest.json"));
}

TEST_F(Checkpoint, InAFolderThatCannotBeListedAreAnErrorOnAllRanksNotNone) {
  std::ofstream(options().folder) << "a file where the folder was";
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    EXPECT_THAT(error_of([&] { Checkpointer(trainer.sharded, *trainer.optimizer, options()).load_latest(); }),
                HasSubstr("rank 0: cannot list the checkpoints in"));
  });
}

// Goal: no number in a manifest leads to a bad access. The checkpoint is passed over, or loaded correctly.
TEST_F(Checkpoint, WithAHostileManifestIsPassedOver) {
  save_steps(2, {1});
  const auto manifest = fsdp::latest_valid(options().folder)->manifest;
  const auto big = std::numeric_limits<std::int64_t>::max();
  const auto attack = [&](const auto& change) {
    fsdp::Json hostile = manifest;
    change(hostile);
    std::ofstream(step_path(1) / "manifest.json") << hostile.dump();
    const auto [step, ignored] = load(2);
    EXPECT_EQ(step, -1) << hostile.dump();
    EXPECT_EQ(ignored.size(), 1u);
  };
  const auto slices = [](fsdp::Json& m) -> fsdp::Json& { return m["tensors"]["block0.up"]["slices"]; };
  using Numbers = fsdp::Json::Array;
  attack([&](fsdp::Json& m) { m["world_size"] = (std::int64_t{1} << 32) + 2; });
  attack([&](fsdp::Json& m) { m["world_size"] = 0; });
  attack([&](fsdp::Json& m) { slices(m) = Numbers{Numbers{0, 0, big}, Numbers{1, big, big}}; });
  attack([&](fsdp::Json& m) { slices(m) = Numbers{Numbers{std::int64_t{1} << 32, 0, 377}}; });
  attack([&](fsdp::Json& m) { slices(m) = Numbers{Numbers{0, 0, -377}}; });
  attack([&](fsdp::Json& m) { slices(m) = Numbers{}; });
  attack([&](fsdp::Json& m) { m["tensors"]["block0.up"]["shape"] = Numbers{big, big}; });
  attack([&](fsdp::Json& m) { m["optimizer"]["steps"] = -1; });
  attack([&](fsdp::Json& m) { m["tensors"]["block0.up"]["steps"] = -1; });
  attack([&](fsdp::Json& m) { m["files"].as_array()[0]["name"] = "../../etc/passwd"; });
  attack([&](fsdp::Json& m) { m["files"].as_array()[1]["crc32c"] = -1; });
}

TEST_F(Checkpoint, OfAnotherModelIsAnErrorNotAReasonToStartOver) {
  save_steps(2, {1});
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    const auto model = make_model(7, /*layers=*/4);
    fsdp::ShardedModel sharded(model, mesh);
    sharded.fully_shard(model);
    fsdp::AdamW optimizer(sharded);
    EXPECT_THAT(error_of([&] { Checkpointer(sharded, optimizer, options()).load_latest(); }),
                HasSubstr("is of another model: it has no parameter block3.norm"));
    const auto small = make_model(7, /*layers=*/2);
    fsdp::ShardedModel fewer(small, mesh);
    fewer.fully_shard(small);
    fsdp::AdamW other(fewer);
    EXPECT_THAT(error_of([&] { Checkpointer(fewer, other, options()).load_latest(); }),
                HasSubstr("this one has no parameter block2."));
  });
}

TEST_F(Checkpoint, MayBeOfTheSameModelInOtherUnits) {
  save_steps(2, {2});
  run_ranks(3, [&](fsdp::DeviceMesh& mesh) {
    const auto model = make_model(99);
    fsdp::ShardedModel sharded(model, mesh);
    model->wrap = wrapper(sharded.fully_shard(model));
    fsdp::AdamW optimizer(sharded);
    ASSERT_TRUE(Checkpointer(sharded, optimizer, options()).load_latest());
    Trainer trainer(mesh);
    ASSERT_TRUE(Checkpointer(trainer.sharded, *trainer.optimizer, options()).load_latest());
    const auto whole = sharded.gather_full_state();
    for (const auto& [name, tensor] : trainer.sharded.gather_full_state())
      EXPECT_TRUE(at::equal(tensor, whole.at(name))) << name;
  });
}

TEST_F(Checkpoint, KeepsTheNewestAndTheJustSaved) {
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    CheckpointOptions two = options();
    two.keep = 2;
    Checkpointer checkpointer(trainer.sharded, *trainer.optimizer, two);
    for (int step = 1; step <= 4; ++step) EXPECT_TRUE(checkpointer.save(state_of(step)).warnings.empty());
    mesh.shard().barrier();
    EXPECT_THAT(names_in(two.folder), ElementsAre("step-00000003", "step-00000004"));
    mesh.shard().barrier();
    // A run that went back: later checkpoints stay until they are replaced.
    two.keep = 1;
    Checkpointer(trainer.sharded, *trainer.optimizer, two).save(state_of(2));
    mesh.shard().barrier();
    EXPECT_THAT(names_in(two.folder), ElementsAre("step-00000002", "step-00000003", "step-00000004"));
  });
}

TEST_F(Checkpoint, KeepsAnOldOneThatTheCallerNamesBesideTheNewest) {
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    CheckpointOptions two = options();
    two.keep = 2;
    Checkpointer checkpointer(trainer.sharded, *trainer.optimizer, two);
    const auto there = [&](std::int64_t step, std::optional<std::int64_t> also_keep) {
      EXPECT_TRUE(checkpointer.save(state_of(step), also_keep).warnings.empty());
      mesh.shard().barrier();
      auto names = names_in(two.folder);
      mesh.shard().barrier();
      return names;
    };
    for (int step = 1; step <= 4; ++step) there(step, 2);
    EXPECT_THAT(there(5, 2), ElementsAre("step-00000002", "step-00000004", "step-00000005"));
    EXPECT_THAT(there(6, 5), ElementsAre("step-00000005", "step-00000006")) << "it is one of the two newest";
    EXPECT_THAT(there(7, 99), ElementsAre("step-00000006", "step-00000007")) << "there is no such checkpoint";
    EXPECT_THAT(there(8, std::nullopt), ElementsAre("step-00000007", "step-00000008"));
  });
}

/// Records what happens to the entries of a folder, such as "moved step-00000001".
class FolderWatch {
 public:
  explicit FolderWatch(const fs::path& folder) : inotify_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    if (::inotify_add_watch(inotify_, folder.c_str(), IN_DELETE | IN_MOVED_FROM) < 0) std::abort();
  }
  ~FolderWatch() { ::close(inotify_); }
  FolderWatch(const FolderWatch&) = delete;
  FolderWatch& operator=(const FolderWatch&) = delete;

  std::vector<std::string> events() const {
    alignas(inotify_event) char buffer[16384];
    const ::ssize_t bytes = ::read(inotify_, buffer, sizeof buffer);
    std::vector<std::string> out;
    for (::ssize_t at = 0; at < bytes;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
      out.push_back(((event->mask & IN_DELETE) != 0 ? "removed " : "moved ") + std::string(event->name));
      at += static_cast<::ssize_t>(sizeof(inotify_event) + event->len);
    }
    return out;
  }

 private:
  int inotify_;
};

// Goal: a crash during the removal of an old checkpoint leaves no checkpoint that lacks files.
TEST_F(Checkpoint, TooOldIsRenamedBeforeItIsRemoved) {
  save_steps(2, {1});
  const FolderWatch watch(options().folder);
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    CheckpointOptions one = options();
    one.keep = 1;
    EXPECT_TRUE(Checkpointer(trainer.sharded, *trainer.optimizer, one).save(state_of(2)).warnings.empty());
  });
  EXPECT_THAT(watch.events(), ElementsAre("moved .tmp-step-00000002-attempt-1", "moved step-00000001",
                                          "removed .tmp-step-00000001-attempt-1"));
}

// Goal: the old best checkpoint stays until the new one is committed.
TEST_F(Checkpoint, NamedByTheCallerGoesOnlyAfterItsSuccessorIsCommitted) {
  CheckpointOptions one = options();
  one.keep = 1;
  const auto save = [&](std::int64_t step, std::int64_t also_keep, const std::string& against = "") {
    run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      CheckpointOptions with = one;
      with.may_commit = [against] { return against; };
      error_of([&] { Checkpointer(trainer.sharded, *trainer.optimizer, with).save(state_of(step), also_keep); });
    });
  };
  save(1, 1);
  save(2, 1);
  save(3, 3, "attempt 2 has begun");
  EXPECT_THAT(names_in(one.folder), ElementsAre("step-00000001", "step-00000002"));
  const FolderWatch watch(one.folder);
  save(3, 3);
  EXPECT_THAT(names_in(one.folder), ElementsAre("step-00000003"));
  EXPECT_EQ(watch.events().front(), "moved .tmp-step-00000003-attempt-1") << "published first";
}

struct ThreeNumbers : torch::nn::Module {
  ThreeNumbers() : weight(register_parameter("weight", at::arange(1, 4, at::kFloat))) {}
  at::Tensor weight;
};

// Goal: ranks without a single element of the model save, load and train like the others.
TEST_F(Checkpoint, OfAModelSmallerThanItsRanks) {
  std::map<std::string, at::Tensor> states;
  const auto train = [&](int world_size, const std::string& name, int from, int to) {
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      const auto module = std::make_shared<ThreeNumbers>();
      fsdp::ShardedModel sharded(module, mesh);
      const auto unit = sharded.fully_shard(module);
      fsdp::AdamW optimizer(sharded);
      Checkpointer checkpointer(sharded, optimizer, options());
      EXPECT_EQ(checkpointer.load_latest().has_value(), from > 0);
      for (int step = from + 1; step <= to; ++step) {
        const at::Tensor x = at::full({3}, 1.0 * step);
        unit->run(x, [&](at::Tensor in) { return in * module->weight * module->weight; }).sum().backward();
        EXPECT_GT(sharded.clip_grad_norm(1.0), 1.0);
        optimizer.step(0.1);
        sharded.zero_grad();
      }
      checkpointer.save(state_of(to));
      const auto full = sharded.gather_full_state();
      if (mesh.rank() == 0) states[name] = full.at("weight");
    });
  };
  train(1, "one rank", 0, 4);
  for (const auto& [before, after] : {std::pair{4, 4}, {4, 1}, {1, 4}, {3, 2}}) {
    fs::remove_all(options().folder);
    train(before, "first", 0, 2);
    train(after, "second", 2, 4);
    EXPECT_TRUE(at::allclose(states["second"], states["one rank"], 1e-6, 0)) << before << " then " << after << " ranks";
  }
}

TEST_F(Checkpoint, OfTheSameStepIsReplaced) {
  save_steps(2, {2});
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    CheckpointState state = state_of(2);
    state.extra["second"] = true;
    Checkpointer(trainer.sharded, *trainer.optimizer, options(2)).save(state);
  });
  EXPECT_THAT(names_in(options().folder), ElementsAre("step-00000002"));
  EXPECT_TRUE(fsdp::latest_valid(options().folder)->manifest.at("extra").contains("second"));
  EXPECT_EQ(fsdp::latest_valid(options().folder)->attempt, 2);
}

TEST_F(Checkpoint, OfAFencedAttemptIsNotPublished) {
  save_steps(2, {1});
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    CheckpointOptions fenced = options();
    fenced.may_commit = [&] {
      EXPECT_EQ(mesh.rank(), 0);
      EXPECT_TRUE(fs::exists(fenced.folder / ".tmp-step-00000002-attempt-1" / "manifest.json")) << "asked last";
      return std::string("attempt 2 has begun");
    };
    Checkpointer checkpointer(trainer.sharded, *trainer.optimizer, fenced);
    try {
      checkpointer.save(state_of(2));
      ADD_FAILURE() << "saved";
    } catch (const fsdp::CheckpointFenced& error) {
      EXPECT_STREQ(error.what(), "checkpoint of step 2 not saved: attempt 2 has begun");
    }
  });
  EXPECT_THAT(names_in(options().folder), ElementsAre("step-00000001"));
}

/// Rank 0 of attempt 1 is frozen while it commits step 2. Meanwhile attempt 2 begins and may save the same step.
class FrozenCommit : public Checkpoint, public ::testing::WithParamInterface<bool> {
 protected:
  FrozenCommit() { can_exchange = GetParam(); }
  ~FrozenCommit() override { can_exchange = true; }

  void begin_attempt_2() { newest_ = 2; }
  /// Publishes step 2 as attempt 2 would: whole, in one step.
  void publish_of_attempt_2() {
    const auto target = step_path(2), away = folder_.path() / "replaced";
    if (fs::exists(target)) fs::rename(target, away);
    fs::rename(folder_.path() / "elsewhere" / "step-00000002", target);
    fs::remove_all(away);
  }
  /// Saves step 2 as attempt 1, which must find out that it is fenced.
  void save_frozen(const std::function<void()>& before_rename, const std::function<void()>& after_rename) {
    save_steps(2, {1});
    run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      CheckpointOptions other = options(2);
      other.folder = folder_.path() / "elsewhere";
      Checkpointer(trainer.sharded, *trainer.optimizer, other).save(state_of(2));
    });
    run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      CheckpointOptions frozen = options(1);
      int asked = 0;
      frozen.may_write = [&, asked]() mutable {
        EXPECT_EQ(mesh.rank(), 0);
        if (++asked == 2) after_rename();
        return newest_ == 1 ? std::string() : "attempt 2 has begun";
      };
      frozen.may_commit = [&] {
        before_rename();
        return std::string();  // this call had returned before the rank was frozen
      };
      try {
        Checkpointer(trainer.sharded, *trainer.optimizer, frozen).save(state_of(2));
        ADD_FAILURE() << "saved";
      } catch (const fsdp::CheckpointFenced& error) {
        EXPECT_STREQ(error.what(), "checkpoint of step 2 not saved: attempt 2 has begun");
      }
    });
  }
  std::atomic<int> newest_ = 1;
};
INSTANTIATE_TEST_SUITE_P(FileSystems, FrozenCommit, ::testing::Bool(),
                         [](const auto& param) { return std::string(param.param ? "Exchange" : "NoExchange"); });

TEST_P(FrozenCommit, IsWithdrawn) {
  save_frozen([&] { begin_attempt_2(); }, [&] { EXPECT_EQ(fsdp::latest_valid(options().folder)->step, 2); });
  EXPECT_THAT(names_in(options().folder), ElementsAre("step-00000001"));
}

TEST_P(FrozenCommit, PutsBackTheNewerAttemptsCheckpointOfTheSameStep) {
  save_frozen(
      [&] {
        begin_attempt_2();
        publish_of_attempt_2();
      },
      [&] { EXPECT_EQ(fsdp::latest_valid(options().folder)->attempt, 1) << "it has taken its place"; });
  EXPECT_THAT(names_in(options().folder), ElementsAre("step-00000001", "step-00000002"));
  EXPECT_EQ(fsdp::latest_valid(options().folder)->attempt, 2);
  EXPECT_EQ(load(2).first, 2) << "all of it is there";
}

TEST_P(FrozenCommit, LeavesWhatTheNewerAttemptHasPutInItsPlaceMeanwhile) {
  save_frozen([&] { begin_attempt_2(); }, [&] { publish_of_attempt_2(); });
  EXPECT_THAT(names_in(options().folder), ElementsAre("step-00000001", "step-00000002"));
  EXPECT_EQ(fsdp::latest_valid(options().folder)->attempt, 2);
  EXPECT_EQ(load(2).first, 2);
}

TEST_F(Checkpoint, OfAFencedAttemptIsNotEvenBegun) {
  save_steps(2, {1});
  const auto long_ago = fs::last_write_time(options().folder) - std::chrono::hours(24);
  fs::last_write_time(options().folder, long_ago);
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    CheckpointOptions fenced = options();
    fenced.may_write = [] { return std::string("attempt 2 has begun"); };
    EXPECT_THROW(Checkpointer(trainer.sharded, *trainer.optimizer, fenced).save(state_of(2)), fsdp::CheckpointFenced);
  });
  EXPECT_EQ(fs::last_write_time(options().folder), long_ago) << "something was written and removed again";
}

TEST_F(Checkpoint, OldOnesStayWhenTheAttemptIsFencedAfterItsCommit) {
  save_steps(2, {1});
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    CheckpointOptions late = options();
    late.keep = 1;
    int asked = 0;
    late.may_write = [&asked] { return ++asked <= 2 ? std::string() : "attempt 2 has begun"; };
    Checkpointer(trainer.sharded, *trainer.optimizer, late).save(state_of(2));
  });
  EXPECT_THAT(names_in(options().folder), ElementsAre("step-00000001", "step-00000002"));
}

TEST_F(Checkpoint, ThatOneRankCannotWriteIsTheSameErrorOnAll) {
  save_steps(2, {1});
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    Checkpointer checkpointer(trainer.sharded, *trainer.optimizer, options());
    CheckpointState state = state_of(2);
    if (mesh.rank() == 1) state.rank_tensors["bad"] = at::ones({1}, at::kComplexFloat);
    EXPECT_THAT(error_of([&] { checkpointer.save(state); }),
                HasSubstr("checkpoint of step 2 not saved: rank 1: safetensors cannot hold dtype"));
    state.rank_tensors.clear();
    EXPECT_EQ(error_of([&] { checkpointer.save(state); }), "no error") << "the next one works";
  });
  EXPECT_THAT(names_in(options().folder), ElementsAre("step-00000001", "step-00000002"));
}

TEST_F(Checkpoint, ThatOutgrowsItsFileLimitLeavesTheEarlierOnes) {
  save_steps(2, {1});
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 4096;
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    Checkpointer checkpointer(trainer.sharded, *trainer.optimizer, options());
    mesh.shard().barrier();
    if (mesh.rank() == 0) ::setrlimit(RLIMIT_FSIZE, &small);
    mesh.shard().barrier();
    EXPECT_THAT(error_of([&] { checkpointer.save(state_of(2)); }),
                ::testing::MatchesRegex("checkpoint of step 2 not saved: rank 0: cannot write .*rank-00000-of-00002"
                                        ".safetensors beyond 4096 bytes: File too large.*"));
    mesh.shard().barrier();
    if (mesh.rank() == 0) ::setrlimit(RLIMIT_FSIZE, &before);
  });
  EXPECT_THAT(names_in(options().folder), ElementsAre("step-00000001"));
  EXPECT_EQ(load(2).first, 1);
}

TEST_F(Checkpoint, OnAFullOrReadOnlyDiskFailsCleanly) {
  fs::create_directories(options().folder);
  const std::string folder = options().folder.string();
  if (::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "no right to mount a small file system; the file limit's test covers the path";
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    Checkpointer checkpointer(trainer.sharded, *trainer.optimizer, options());
    checkpointer.save(state_of(1));
    EXPECT_THAT(error_of([&] { checkpointer.save(state_of(2)); }), HasSubstr("No space left on device"));
    mesh.shard().barrier();
    if (mesh.rank() == 0) ::mount("tmpfs", folder.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "size=64k");
    mesh.shard().barrier();
    EXPECT_THAT(error_of([&] { checkpointer.save(state_of(3)); }), HasSubstr("Read-only file system"));
  });
  EXPECT_THAT(names_in(options().folder), ElementsAre("step-00000001"));
  EXPECT_EQ(load(2).first, 1);
  ::umount2(folder.c_str(), MNT_DETACH);
}

TEST_F(Checkpoint, LeftoversOfThisAndEarlierAttemptsAreRemoved) {
  save_steps(2, {1});
  for (const char* name : {".tmp-step-00000002-attempt-1", ".tmp-step-00000002-attempt-2",
                           ".tmp-step-00000002-attempt-3", ".tmp-unrelated", "notes"})
    fs::create_directories(options().folder / name / "inside");
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    Checkpointer(trainer.sharded, *trainer.optimizer, options(2)).remove_stale();
  });
  EXPECT_THAT(names_in(options().folder),
              ElementsAre(".tmp-step-00000002-attempt-3", ".tmp-unrelated", "notes", "step-00000001"));
}

}  // namespace
