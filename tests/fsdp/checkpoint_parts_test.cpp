// Goal: a checkpoint holds any models with any optimizers, and checkpoints of earlier programs still load.
// Method: the small model beside a teacher on 1 to 3 ranks, and checkpoints that the programs of format versions 1 and
// 2 wrote.
#include <gmock/gmock.h>

#include "fsdp/optim/adafactor.h"
#include "fsdp/optim/muon.h"
#include "fsdp/optim/optimizers.h"
#include "tests/fsdp/checkpoint_fixture.h"
#include "tests/fsdp/error_of.h"
#include "tests/places.h"

namespace {

using fsdp::Checkpointer;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Le;

/// A model that is never trained by an optimizer, such as the average of another one.
struct Teacher {
  Teacher(fsdp::DeviceMesh& mesh, std::uint64_t seed) : model(make_model(seed, /*layers=*/1)), sharded(model, mesh) {
    sharded.fully_shard(model);
  }
  std::shared_ptr<SmallModel> model;
  fsdp::ShardedModel sharded;
};

void expect_equal(const std::map<std::string, at::Tensor>& got, const std::map<std::string, at::Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, tensor] : got) EXPECT_TRUE(at::equal(tensor, want.at(name))) << name;
}

TEST_F(Checkpoint, HoldsATeacherBesideTheModel) {
  std::map<std::string, at::Tensor> model, teacher;
  double next = 0;
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    Teacher other(mesh, 11);
    trainer.step(1);
    Checkpointer({{"model", trainer.sharded, trainer.optimizer.get()}, {"teacher", other.sharded}}, options())
        .save(state_of(1));
    const auto full = trainer.sharded.gather_full_state(), full_teacher = other.sharded.gather_full_state();
    const double loss = trainer.step(2);
    if (mesh.rank() == 0) model = full, teacher = full_teacher, next = loss;
  });
  for (const int world_size : {1, 2, 3}) {
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh, {}, /*seed=*/99);
      Teacher other(mesh, 98);
      Checkpointer both({{"teacher", other.sharded}, {"model", trainer.sharded, trainer.optimizer.get()}}, options());
      ASSERT_TRUE(both.load_latest());
      expect_equal(trainer.sharded.gather_full_state(), model);
      expect_equal(other.sharded.gather_full_state(), teacher);
      EXPECT_THAT(relative(trainer.step(2), next), Le(1e-5)) << "the optimizer goes on";
    });
  }
}

TEST_F(Checkpoint, OfOtherPartsIsAnErrorThatNamesThem) {
  save_steps(2, {1});
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    Teacher other(mesh, 98);
    Checkpointer both({{"model", trainer.sharded, trainer.optimizer.get()}, {"teacher", other.sharded}}, options());
    EXPECT_THAT(error_of([&] { both.load_latest(); }),
                AllOf(HasSubstr("step-00000001"), HasSubstr("has no part teacher, which this run has")));
    both.save(state_of(2));
    EXPECT_THAT(error_of([&] { Checkpointer(trainer.sharded, *trainer.optimizer, options()).load_latest(); }),
                AllOf(HasSubstr("step-00000002"), HasSubstr("has a part teacher, which this run does not have")));
  });
}

TEST_F(Checkpoint, OfAnotherOptimizerIsAnErrorThatNamesBoth) {
  save_steps(2, {1});
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh, {}, 7, maker<fsdp::Adam>(fsdp::AdamOptions()));
    EXPECT_THAT(error_of([&] { Checkpointer(trainer.sharded, *trainer.optimizer, options()).load_latest(); }),
                HasSubstr("was saved with the optimizer adamw, and this run has adam for its model"));
    Checkpointer({{"model", trainer.sharded}}, options()).save(state_of(2));
    EXPECT_THAT(error_of([&] { Checkpointer(trainer.sharded, *trainer.optimizer, options()).load_latest(); }),
                HasSubstr("was saved without an optimizer, and this run has adam for its model"));
  });
}

// Momentum and Lion have one state, plain SGD has none.
TEST_F(Checkpoint, HoldsTheStatesOfAnyOptimizer) {
  fsdp::SgdOptions momentum;
  momentum.momentum = 0.9;
  momentum.dampening = 0.5;
  fsdp::MuonOptions muon;
  muon.is_matrix = [](const fsdp::ParameterInfo& info) { return info.shape.size() == 2 && info.name != "embedding"; };
  for (const MakeOptimizer& make : {maker<fsdp::Lion>(fsdp::LionOptions()), maker<fsdp::Sgd>(momentum),
                                    maker<fsdp::Sgd>(fsdp::SgdOptions()), maker<fsdp::Adam>(fsdp::AdamOptions()),
                                    maker<fsdp::Adafactor>(fsdp::AdafactorOptions()), maker<fsdp::Muon>(muon)}) {
    std::filesystem::remove_all(options().folder);
    double next = 0;
    run_ranks(3, [&](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh, {}, 7, make);
      for (int step = 0; step < 3; ++step) trainer.step(step);
      Checkpointer(trainer.sharded, *trainer.optimizer, options()).save(state_of(3));
      trainer.step(3);
      const double loss = trainer.step(4);
      if (mesh.rank() == 0) next = loss;
    });
    for (const int world_size : {3, 1, 2}) {
      run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
        Trainer trainer(mesh, {}, /*seed=*/99, make);
        ASSERT_TRUE(Checkpointer(trainer.sharded, *trainer.optimizer, options()).load_latest());
        trainer.step(3);
        EXPECT_THAT(relative(trainer.step(4), next), Le(world_size == 3 ? 0 : 1e-3)) << trainer.optimizer->name();
      });
    }
  }
}

TEST_F(Checkpoint, OfTheSameOptimizerWithOtherStatesIsAnErrorThatNamesThem) {
  fsdp::SgdOptions momentum;
  momentum.momentum = 0.9;
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer plain(mesh, {}, 7, maker<fsdp::Sgd>(fsdp::SgdOptions())), with(mesh, {}, 7, maker<fsdp::Sgd>(momentum));
    Checkpointer(plain.sharded, *plain.optimizer, options()).save(state_of(1));
    EXPECT_THAT(error_of([&] { Checkpointer(with.sharded, *with.optimizer, options()).load_latest(); }),
                HasSubstr("was saved with the optimizer sgd of states none, and this run has sgd for its model of "
                          "states momentum_buffer"));
  });
}

TEST_F(Checkpoint, GivesItsWeightsToARunWithoutAnOptimizer) {
  save_steps(2, {2});
  run_ranks(3, [&](fsdp::DeviceMesh& mesh) {
    Trainer trained(mesh);
    ASSERT_TRUE(Checkpointer(trained.sharded, *trained.optimizer, options()).load_latest());
    const auto model = make_model(99);
    fsdp::ShardedModel evaluated(model, mesh);
    evaluated.fully_shard(model);
    ASSERT_TRUE(Checkpointer({{"model", evaluated}}, options()).load_latest());
    expect_equal(evaluated.gather_full_state(), trained.sharded.gather_full_state());
  });
}

TEST_F(Checkpoint, RefusesNamesOfPartsThatCannotBeToldApart) {
  run_ranks(1, [&](fsdp::DeviceMesh& mesh) {
    Teacher a(mesh, 1), b(mesh, 2);
    for (const char* name : {"model", "rank", "a/b", ""})
      EXPECT_THAT(error_of([&] {
                    Checkpointer({{"model", a.sharded}, {name, b.sharded}}, options());
                  }),
                  HasSubstr("part \"" + std::string(name) + "\": want a name"));
  });
}

/// The model of tests/fsdp/checkpoint_v1 to checkpoint_v3. Two ranks of the programs of versions 1 and 2 trained it for
/// two steps. checkpoint_v3 has the files of version 2, and a manifest as version 3 writes it.
struct Earlier : torch::nn::Module {
  Earlier() {
    matrix = register_parameter("matrix", at::arange(1, 7, at::kFloat).reshape({2, 3}) / 4);
    bias = register_parameter("bias", at::arange(1, 40, at::kFloat) / 8);
    frozen = register_parameter("frozen", at::full({2}, 0.5), /*requires_grad=*/false);
  }
  at::Tensor forward(const at::Tensor& x) const {
    return (x * matrix * matrix).sum() + (bias * bias).sum() * frozen.sum();
  }
  at::Tensor matrix, bias, frozen;
};

class CheckpointOfVersion : public Checkpoint, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Earlier, CheckpointOfVersion, ::testing::Values("v1", "v2", "v3"),
                         [](const auto& param) { return std::string(param.param); });

TEST_P(CheckpointOfVersion, LoadsAndGoesOn) {
  const at::Tensor after_four = at::tensor({-0.0937f, 0.0904f, 0.3337f, 0.5758f, 0.8171f, 1.0581f}).reshape({2, 3});
  fsdp::CheckpointOptions earlier = options();
  earlier.folder = ::test::source_folder() + "/tests/fsdp/checkpoint_" + GetParam();
  for (const int world_size : {1, 2, 3}) {
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      const auto module = std::make_shared<Earlier>(), again = std::make_shared<Earlier>();
      fsdp::ShardedModel resumed(module, mesh), fresh(again, mesh);
      const auto unit = resumed.fully_shard(module), fresh_unit = fresh.fully_shard(again);
      fsdp::AdamW optimizer(resumed), fresh_optimizer(fresh);
      const auto train = [](fsdp::ShardedModel& model, fsdp::Unit& u, const Earlier& m, fsdp::AdamW& adamw, int step) {
        u.run(at::full({3}, 1.0 * step), [&](const at::Tensor& in) { return m.forward(in); }).backward();
        adamw.step(0.1);
        model.zero_grad();
      };
      for (int step = 1; step <= 4; ++step) train(fresh, *fresh_unit, *again, fresh_optimizer, step);

      Checkpointer checkpointer(resumed, optimizer, earlier);
      const auto loaded = checkpointer.load_latest();
      ASSERT_TRUE(loaded);
      EXPECT_EQ(loaded->state.extra.at("samples").as_int(), 24);
      EXPECT_EQ(loaded->state.rank_tensors.count("mine"), world_size == 2 ? 1u : 0u);
      EXPECT_EQ(optimizer.parameter_steps(), (fsdp::Optimizer::StepCounts{{2, 2, 0}}));
      for (int step = 3; step <= 4; ++step) train(resumed, *unit, *module, optimizer, step);
      const auto state = resumed.gather_full_state();
      EXPECT_TRUE(at::allclose(state.at("matrix"), after_four, 0, 1e-4)) << "as that program went on";
      for (const auto& [name, tensor] : fresh.gather_full_state())
        EXPECT_THAT(distance(state.at(name), tensor), Le(1e-6)) << name;
    });
  }
}

}  // namespace
