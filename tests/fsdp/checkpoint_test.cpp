// Goal: a checkpoint is either whole or absent, and a resumed run equals one that was never interrupted.
// Method: the small model on 1 to 4 ranks as threads, with real files that the tests damage.
#include <gmock/gmock.h>

#include <fstream>
#include <limits>

#include "fsdp/files/checkpoint_manifest.h"
#include "fsdp/optim/grad_scaler.h"
#include "tests/fsdp/checkpoint_fixture.h"
#include "tests/fsdp/error_of.h"

namespace {

using fsdp::Checkpointer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Le;
namespace fs = std::filesystem;

void flip_byte(const fs::path& path, std::int64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const char byte = static_cast<char>(file.get() ^ 1);
  file.seekp(at);
  file.put(byte);
}

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
    sharding.precision.param_dtype = dtype;

    std::vector<double> losses;
    std::map<std::string, at::Tensor> uninterrupted;
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh, sharding);
      Checkpointer checkpointer(trainer.sharded, *trainer.optimizer, options());
      for (int step = 1; step <= 10; ++step) {
        const double loss = trainer.step(step);
        if (mesh.rank() == 0) losses.push_back(loss);
        auto state = state_of(step);
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
  EXPECT_EQ(manifest.at("parts").at("model").at("tensors").at("block1.up").at("steps").as_int(), kSaved);
  EXPECT_EQ(manifest.at("parts").at("model").at("tensors").at("block2.up").at("steps").as_int(), kSaved - 2);
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
  for (auto& [name, tensor] : manifest["parts"]["model"]["tensors"].as_object()) tensor.as_object().erase("steps");
  std::ofstream(step_path(3) / "manifest.json") << fsdp::summed_text(manifest);
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
  EXPECT_EQ(info->manifest.at("parts").at("model").at("optimizer").at("steps").as_int(), 3);
  const fsdp::Json& up = info->manifest.at("parts").at("model").at("tensors").at("block0.up");
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
  const auto size = std::to_string(fs::file_size(file));
  EXPECT_THAT(ignored,
              ElementsAre("step-00000002: rank 1: rank-00001-of-00002.safetensors is corrupt in block 0, bytes 0 "
                          "to " +
                          size + ": its checksum is not the manifest's"));
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
    std::ofstream(step_path(1) / "manifest.json") << fsdp::summed_text(hostile);
    const auto [step, ignored] = load(2);
    EXPECT_EQ(step, -1) << hostile.dump();
    EXPECT_EQ(ignored.size(), 1u);
  };
  const auto slices = [](fsdp::Json& m) -> fsdp::Json& {
    return m["parts"]["model"]["tensors"]["block0.up"]["slices"];
  };
  using Numbers = fsdp::Json::Array;
  attack([&](fsdp::Json& m) { m["world_size"] = (std::int64_t{1} << 32) + 2; });
  attack([&](fsdp::Json& m) { m["world_size"] = 0; });
  attack([&](fsdp::Json& m) { slices(m) = Numbers{Numbers{0, 0, big}, Numbers{1, big, big}}; });
  attack([&](fsdp::Json& m) { slices(m) = Numbers{Numbers{std::int64_t{1} << 32, 0, 377}}; });
  attack([&](fsdp::Json& m) { slices(m) = Numbers{Numbers{0, 0, -377}}; });
  attack([&](fsdp::Json& m) { slices(m) = Numbers{}; });
  attack([&](fsdp::Json& m) { m["parts"]["model"]["tensors"]["block0.up"]["shape"] = Numbers{big, big}; });
  attack([&](fsdp::Json& m) { m["parts"]["model"]["optimizer"]["steps"] = -1; });
  attack([&](fsdp::Json& m) { m["parts"]["model"]["tensors"]["block0.up"]["steps"] = -1; });
  attack([&](fsdp::Json& m) { m["files"].as_array()[0]["name"] = "../../etc/passwd"; });
  const auto file = [](fsdp::Json& m) -> fsdp::Json& { return m["files"].as_array()[1]; };
  attack([&](fsdp::Json& m) { file(m)["blocks"] = Numbers{-1}; });
  attack([&](fsdp::Json& m) { file(m)["blocks"] = Numbers{std::int64_t{1} << 32}; });
  attack([&](fsdp::Json& m) { file(m)["blocks"] = Numbers{}; });
  attack([&](fsdp::Json& m) { file(m)["block_bytes"] = 0; });
  attack([&](fsdp::Json& m) { file(m)["block_bytes"] = big; });
  attack([&](fsdp::Json& m) { file(m)["block_bytes"] = 1; });
  attack([&](fsdp::Json& m) { file(m)["header"]["bytes"] = big; });
  attack([&](fsdp::Json& m) { file(m)["header"]["crc32c"] = 7; });
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
        const auto norm = fsdp::gradient_norm(sharded, 1.0);
        EXPECT_GT(norm.norm.item<double>(), 1.0);
        optimizer.step(0.1, norm.grad_scale, norm.found_inf);
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

}  // namespace
