// Goal: a checkpoint may hold a part of a model's parameters, and a run may take a part of a checkpoint, and neither
// happens unseen.
// Method: the small model with a few parameters that train ("adapters") at 1 to 4 ranks.
#include <gmock/gmock.h>

#include "fsdp/engine/initialize.h"
#include "tests/fsdp/checkpoint_fixture.h"
#include "tests/fsdp/error_of.h"

namespace {

using fsdp::Checkpointer;
using fsdp::CheckpointPart;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Le;
using FullState = std::map<std::string, at::Tensor>;

constexpr std::int64_t kAdapters = 6;  // of three blocks
constexpr std::int64_t kOthers = 17;   // embedding, norm, and five of each block

bool is_trained(const std::string& parameter) {
  return parameter.ends_with(".up") || parameter.ends_with(".bias");
}

/// A small model of which only the adapters train and are saved.
struct Adapting {
  explicit Adapting(fsdp::DeviceMesh& m, const std::shared_ptr<SmallModel>& module = make_model(),
                    const fsdp::ShardOptions& options = {})
      : mesh(m), model(module), sharded(model, mesh) {
    for (const auto& item : model->named_parameters()) {
      at::Tensor parameter = item.value();
      parameter.set_requires_grad(is_trained(item.key()));
    }
    for (const auto& block : model->blocks) block->wrap = wrapper(sharded.fully_shard(block, options));
    model->wrap = wrapper(sharded.fully_shard(model, options));
    optimizer = std::make_unique<fsdp::AdamW>(sharded);
  }

  double step(std::int64_t step) {
    const at::Tensor loss = model->forward(part_of(tokens_of(step), mesh.rank(), mesh.world_size()));
    loss.backward();
    optimizer->step(1e-2);
    sharded.zero_grad();
    return mesh.control().all_reduce(loss.item<double>()) / mesh.world_size();
  }

  CheckpointPart part() { return {"model", sharded, optimizer.get(), is_trained}; }

  fsdp::DeviceMesh& mesh;
  std::shared_ptr<SmallModel> model;
  fsdp::ShardedModel sharded;
  std::unique_ptr<fsdp::AdamW> optimizer;
};

void expect_full_state(fsdp::ShardedModel& model, const FullState& want) {
  for (const auto& [name, tensor] : model.gather_full_state()) EXPECT_TRUE(at::equal(tensor, want.at(name))) << name;
}

TEST_F(Checkpoint, OfAdaptersGoesOnBesideABaseFromElsewhere) {
  FullState base, trained;
  double next = 0;
  run_ranks(3, [&](fsdp::DeviceMesh& mesh) {
    Adapting run(mesh);
    const auto before = run.sharded.gather_full_state();
    run.step(0);
    run.step(1);
    Checkpointer({run.part()}, options()).save(state_of(2));
    const auto after = run.sharded.gather_full_state();
    const double loss = run.step(2);
    if (mesh.rank() == 0) base = before, trained = after, next = loss;
  });
  const auto info = fsdp::latest_valid(options().folder);
  ASSERT_TRUE(info);
  const fsdp::Json& part = info->manifest.at("parts").at("model");
  EXPECT_EQ(part.at("tensors").size(), static_cast<std::size_t>(kAdapters));
  EXPECT_EQ(part.at("left_out").as_int(), kOthers);
  for (const int world_size : kWorldSizes) {
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      Adapting run(mesh, make_model(99));
      run.sharded.load_full_state(base);
      ASSERT_TRUE(Checkpointer({run.part()}, options()).load_latest());
      expect_full_state(run.sharded, trained);
      EXPECT_EQ(run.optimizer->steps(0, 1), 2) << "of block0.up";
      const double loss = run.step(2);
      EXPECT_THAT(relative(loss, next), Le(world_size == 3 ? 0 : 1e-5));
    });
  }
}

// A parameter that trains and is not saved begins anew, as if its states had never been.
TEST_F(Checkpoint, ForgetsTheStatesOfWhatItDoesNotHold) {
  const auto saved = [](const std::string& name) { return !name.ends_with(".down"); };
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    trainer.step(0);
    Checkpointer checkpointer({{"model", trainer.sharded, trainer.optimizer.get(), saved}}, options());
    checkpointer.save(state_of(1));
    trainer.step(1);
    const at::Tensor down = trainer.sharded.gather_full_state().at("block0.down");
    ASSERT_TRUE(checkpointer.load_latest());
    EXPECT_TRUE(at::equal(trainer.sharded.gather_full_state().at("block0.down"), down)) << "values stay";
    EXPECT_EQ(trainer.optimizer->steps(0, 3), 0) << "of block0.down";
    EXPECT_EQ(trainer.optimizer->steps(0, 1), 1) << "of block0.up";
    const fsdp::Segment& segment = trainable_part(*trainer.sharded.units()[0]);
    for (const fsdp::ParameterInfo& parameter : segment.layout().parameters()) {
      if (parameter.name != "block0.down") continue;
      const fsdp::Slice slice = segment.layout().own(parameter);
      for (const auto& [name, state] : segment.states())
        EXPECT_FALSE(at::any(state.narrow(0, slice.shard_offset, slice.length)).item<bool>()) << name;
    }
  });
}

TEST_F(Checkpoint, OfAdaptersIsNoCheckpointOfAnotherModel) {
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Adapting run(mesh);
    Checkpointer({run.part()}, options()).save(state_of(1));
    Trainer whole(mesh);
    EXPECT_THAT(error_of([&] { Checkpointer(whole.sharded, *whole.optimizer, options()).load_latest(); }),
                AllOf(HasSubstr("step-00000001 is of another model: it has no parameter block0.norm (17 were left "
                                "out)")));
    // A model with the same adapters over fewer other parameters.
    const auto first = [](const std::string& name) { return name == "block0.up"; };
    Checkpointer({{"model", run.sharded, nullptr, first}}, options()).save(state_of(2));
    Adapting shallow(mesh, make_model(7, /*layers=*/2));
    EXPECT_THAT(error_of([&] {
                  Checkpointer({{"model", shallow.sharded, nullptr, first}}, options()).load_latest();
                }),
                HasSubstr("it left out 22 parameters, and this run has 15 that it does not have"));
  });
}

TEST_F(Checkpoint, OfAdaptersLeavesABaseWithoutValuesWithout) {
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Adapting run(mesh);
    Checkpointer({run.part()}, options()).save(state_of(1));
    const auto empty = [] {
      const fsdp::MetaDeviceGuard without_memory;
      return std::make_shared<SmallModel>();
    }();
    Adapting resumed(mesh, empty);
    ASSERT_TRUE(Checkpointer({resumed.part()}, options()).load_latest());
    EXPECT_THAT(
        error_of([&] { resumed.sharded.gather_full_state(); }),
        HasSubstr("unit block0: gather_full_state needs values, and parameter block0.norm was built on the meta "
                  "device"));
  });
}

TEST_F(Checkpoint, BesideTheTrainingCopiesOnlyWhatItSaves) {
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Adapting run(mesh);
    Checkpointer adapters({run.part()}, options());
    run.step(0);
    adapters.begin_save(state_of(1));
    const auto saved = run.sharded.gather_full_state();
    run.step(1);
    ASSERT_TRUE(adapters.wait());
    std::int64_t bytes = 0;
    for (const auto& unit : run.sharded.units())
      for (const auto& segment : unit->segments())
        if (segment->key().trainable) bytes += 3 * segment->layout().chunk() * 4;
    EXPECT_EQ(adapters.snapshot_bytes(), bytes) << "values and two moments in fp32";
    ASSERT_TRUE(adapters.load_latest());
    expect_full_state(run.sharded, saved);
  });
}

TEST_F(Checkpoint, GivesItsFp32ValuesToAFrozenModelInBf16) {
  FullState saved;
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    trainer.step(0);
    Checkpointer(trainer.sharded, *trainer.optimizer, options()).save(state_of(1));
    const auto full = trainer.sharded.gather_full_state();
    if (mesh.rank() == 0) saved = full;
  });
  for (auto& [name, value] : saved) value = value.to(at::kBFloat16).to(at::kFloat);
  for (const int world_size : kWorldSizes) {
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      const auto model = make_model(99);
      for (at::Tensor& parameter : model->parameters()) parameter.set_requires_grad(false);
      fsdp::ShardedModel frozen(model, mesh);
      fsdp::ShardOptions half;
      half.precision.param_dtype = at::kBFloat16;
      frozen.fully_shard(model, half);
      ASSERT_EQ(frozen.units()[0]->segments().front()->shard().scalar_type(), at::kBFloat16);
      ASSERT_TRUE(Checkpointer({{"model", frozen}}, options()).load_latest());
      expect_full_state(frozen, saved);
    });
  }
}

TEST_F(Checkpoint, GivesOneOfItsPartsToARunThatAsksForThatOne) {
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer student(mesh), teacher(mesh, {}, /*seed=*/8), loaded(mesh, {}, /*seed=*/99);
    Checkpointer({{"student", student.sharded, student.optimizer.get()}, {"teacher", teacher.sharded}}, options())
        .save(state_of(1));
    fsdp::CheckpointOptions some = options();
    some.some_parts = true;
    Checkpointer one({{"teacher", loaded.sharded}}, some);
    ASSERT_TRUE(one.load_latest());
    expect_full_state(loaded.sharded, teacher.sharded.gather_full_state());
    for (const bool beside : {false, true})
      EXPECT_THAT(error_of([&] { beside ? one.begin_save(state_of(2)) : static_cast<void>(one.save(state_of(2))); }),
                  HasSubstr("a run that loads some parts of a checkpoint cannot save"));
    EXPECT_THAT(error_of([&] {
                  Checkpointer({{"other", loaded.sharded}}, some).load_latest();
                }),
                HasSubstr("has no part other, which this run has"));
  });
}

TEST_F(Checkpoint, IsLoadedByItsStepThoughThereIsANewerOne) {
  std::map<std::int64_t, FullState> states;
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    Checkpointer checkpointer(trainer.sharded, *trainer.optimizer, options());
    for (const std::int64_t step : {1, 2}) {
      trainer.step(step);
      checkpointer.save(state_of(step));
      const auto full = trainer.sharded.gather_full_state();
      if (mesh.rank() == 0) states[step] = full;
    }
  });
  const auto list = fsdp::list_checkpoints(options().folder);
  ASSERT_EQ(list.valid.size(), 2u);
  const auto load_first = [&](fsdp::DeviceMesh& mesh, Trainer& trainer) {
    // Only rank 0 needs to know which one it is.
    const fsdp::CheckpointInfo info = mesh.rank() == 0 ? list.valid[1] : fsdp::CheckpointInfo();
    return Checkpointer(trainer.sharded, *trainer.optimizer, options()).load(info);
  };
  run_ranks(3, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh, {}, /*seed=*/99);
    const auto loaded = load_first(mesh, trainer);
    EXPECT_EQ(loaded.state.step, 1);
    EXPECT_EQ(loaded.path, step_path(1));
    expect_full_state(trainer.sharded, states.at(1));
    EXPECT_EQ(trainer.optimizer->steps(), 1);
  });
  std::filesystem::remove(step_path(1) / "manifest.json");
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh, {}, /*seed=*/99);
    EXPECT_THAT(error_of([&] { load_first(mesh, trainer); }),
                AllOf(HasSubstr("checkpoint " + step_path(1).native() + " not loaded: step-00000001: "),
                      HasSubstr("manifest.json")));
    FullState before;
    for (const auto& item : make_model(99)->named_parameters()) before[item.key()] = item.value().detach();
    expect_full_state(trainer.sharded, before);
  });
}

// The weights that an evaluation and an export use, for programs that load a checkpoint without its optimizer.
TEST_F(Checkpoint, GivesTheAveragesOfTheWeightsWhenAsked) {
  FullState weights, averages;
  run_ranks(3, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    trainer.optimizer->keep_average(0.5);
    for (int step = 0; step < 3; ++step) trainer.step(step);
    Checkpointer checkpointer(trainer.sharded, *trainer.optimizer, options());
    checkpointer.save(state_of(3));
    const auto own = trainer.sharded.gather_full_state();
    trainer.optimizer->exchange_average();
    const auto averaged = trainer.sharded.gather_full_state();
    if (mesh.rank() == 0) weights = own, averages = averaged;
    // Weights and averages would change places in the checkpoint.
    const auto refuses = [](const char* what) {
      return HasSubstr(std::string("the model has its average weights; exchange_average() before ") + what);
    };
    EXPECT_THAT(error_of([&] { checkpointer.save(state_of(4)); }), refuses("a save"));
    EXPECT_THAT(error_of([&] { checkpointer.begin_save(state_of(4)); }), refuses("a save"));
    EXPECT_THAT(error_of([&] { checkpointer.load_latest(); }), refuses("a load"));
  });
  EXPECT_FALSE(at::equal(weights.at("block0.up"), averages.at("block0.up")));
  for (const int world_size : kWorldSizes) {
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh, {}, 99);
      for (const bool averaged : {true, false}) {
        CheckpointPart part{"model", trainer.sharded};
        part.averages = averaged;
        ASSERT_TRUE(Checkpointer({part}, options()).load_latest());
        expect_full_state(trainer.sharded, averaged ? averages : weights);
      }
    });
  }
  // Without averages in the checkpoint there is nothing but the weights.
  save_steps(2, {5});
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh), want(mesh);
    CheckpointPart part{"model", trainer.sharded};
    part.averages = true;
    ASSERT_TRUE(Checkpointer({part}, options()).load_latest());
    ASSERT_TRUE(Checkpointer(want.sharded, *want.optimizer, options()).load_latest());
    expect_full_state(trainer.sharded, want.sharded.gather_full_state());
  });
}

}  // namespace
