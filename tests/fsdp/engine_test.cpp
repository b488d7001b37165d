#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include <cmath>
#include <optional>

#include "fsdp/memory/storage.h"
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/ranks.h"
#include "tests/fsdp/small_model.h"

namespace {

using ::testing::HasSubstr;
using ::testing::Le;

constexpr int kSteps = 20;

void expect_training_equals_reference(int world_size, const fsdp::ShardOptions& options) {
  Reference reference;
  std::vector<double> truth;
  for (int step = 0; step < kSteps; ++step) truth.push_back(reference.step(step));
  ASSERT_LT(truth.back(), 0.8 * truth.front()) << "the reference must learn, or equality says little";
  run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh, options);
    for (int step = 0; step < kSteps; ++step)
      EXPECT_THAT(relative(trainer.step(step), truth[step]), Le(step == 0 ? 1e-6 : 1e-5)) << "step " << step;
    const auto state = trainer.sharded.gather_full_state();
    for (const auto& item : reference.model->named_parameters())
      EXPECT_THAT(distance(state.at(item.key()), item.value()), Le(1e-4)) << item.key();
  });
}

TEST(EveryWorldSize, TrainLikeTheUnshardedModel) {
  for (const int world_size : kWorldSizes) {
    expect_training_equals_reference(world_size, {});
  }
}

TEST(EveryWorldSize, TrainAlikeWithParametersKeptUntilBackwardAndWithoutPrefetch) {
  for (const int world_size : kWorldSizes) {
    fsdp::ShardOptions options;
    options.reshard_after_forward = false;
    options.prefetch_depth = 0;
    expect_training_equals_reference(world_size, options);
  }
}

TEST(OneRank, IsBitwiseEqualToTheUnshardedModel) {
  at::set_num_threads(1);
  run_ranks(1, [](fsdp::DeviceMesh& mesh) {
    Reference reference;
    Trainer trainer(mesh);
    for (int step = 0; step < kSteps; ++step) EXPECT_EQ(trainer.step(step), reference.step(step)) << "step " << step;
    for (const auto& item : reference.model->named_parameters())
      EXPECT_TRUE(at::equal(trainer.model->named_parameters()[item.key()], item.value())) << item.key();
    EXPECT_EQ(mesh.shard().collectives(), 0);
    EXPECT_EQ(trainer.sharded.memory().gathered_bytes_peak, 0);
    EXPECT_EQ(trainer.model->embedding.const_data_ptr(),
              trainable_part(*trainer.sharded.units().back()).shard().const_data_ptr())
        << "the shard is the parameter";
  });
}

// Goal: the bias correction of a parameter's averages counts the updates of that parameter only.
// Method: one block has no gradients in the first steps and in a later one. torch::optim::AdamW, which counts per
// parameter, gives the expected values.
TEST(EveryWorldSize, UpdateABlockThatJoinsLateLikeTorchsAdamW) {
  const fsdp::AdamWOptions o;
  Reference reference;
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const bool decayed : {true, false}) {
    std::vector<at::Tensor> members;
    for (const at::Tensor& p : reference.parameters)
      if ((p.dim() >= 2) == decayed) members.push_back(p);
    auto options = std::make_unique<torch::optim::AdamWOptions>(1e-2);
    options->betas({o.beta1, o.beta2}).eps(o.eps).weight_decay(decayed ? o.weight_decay : 0);
    groups.emplace_back(std::move(members), std::move(options));
  }
  torch::optim::AdamW judge(groups);
  const auto all = reference.model->blocks;
  std::vector<double> truth;
  for (int step = 0; step < kSteps; ++step) {
    choose_blocks(*reference.model, all, step);
    truth.push_back(reference.accumulate(tokens_of(step)));
    judge.step();
    judge.zero_grad();
  }
  for (const int world_size : kWorldSizes) {
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      const auto blocks = trainer.model->blocks;
      for (int step = 0; step < kSteps; ++step) {
        choose_blocks(*trainer.model, blocks, step);
        EXPECT_THAT(relative(trainer.step(step), truth[step]), Le(1e-5)) << "step " << step;
      }
      const auto state = trainer.sharded.gather_full_state();
      for (const auto& item : reference.model->named_parameters())
        EXPECT_THAT(distance(state.at(item.key()), item.value()), Le(1e-4)) << item.key();
      EXPECT_EQ(trainer.optimizer->steps(), kSteps);
      EXPECT_EQ(trainer.optimizer->steps(0, 0), kSteps);
      EXPECT_EQ(trainer.optimizer->steps(2, 0), kSteps - 3);
    });
  }
}

TEST(OneRank, IsBitwiseEqualToTheUnshardedModelWhenABlockJoinsLate) {
  run_ranks(1, [](fsdp::DeviceMesh& mesh) {
    Reference reference;
    Trainer trainer(mesh);
    const auto all = reference.model->blocks, blocks = trainer.model->blocks;
    for (int step = 0; step < kSteps; ++step) {
      choose_blocks(*reference.model, all, step);
      choose_blocks(*trainer.model, blocks, step);
      EXPECT_EQ(trainer.step(step), reference.step(step)) << "step " << step;
    }
  });
}

TEST(EveryWorldSize, AccumulatingWithoutSynchronisationEqualsTheBigBatch) {
  for (const int world_size : kWorldSizes) {
    const int parts = world_size == 3 ? 2 : 3;  // micro-batches of 6 and 4 rows, divided among the ranks
    Reference reference;
    for (int step = 0; step < 3; ++step) reference.step(step);
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      std::int64_t reduced = 0;
      for (int step = 0; step < 3; ++step) {
        for (int micro = 0; micro < parts; ++micro) {
          trainer.sharded.set_requires_gradient_sync(micro + 1 == parts);
          trainer.accumulate(part_of(tokens_of(step), micro, parts), 1.0 / parts);
          for (const auto& unit : trainer.sharded.units()) reduced += unit->has_gradient();
        }
        trainer.optimizer->step(1e-2);
        trainer.sharded.zero_grad();
      }
      EXPECT_EQ(reduced, 3 * 4) << "each unit reduces once a step";
      const auto state = trainer.sharded.gather_full_state();
      for (const auto& item : reference.model->named_parameters())
        EXPECT_THAT(distance(state.at(item.key()), item.value()), Le(1e-5)) << item.key();
    });
  }
}

TEST(EveryWorldSize, AccumulatingWithSynchronisationAddsUp) {
  for (const int world_size : kWorldSizes) {
    Reference reference;
    for (int micro = 0; micro < 2; ++micro) reference.accumulate(tokens_of(micro));
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      for (int micro = 0; micro < 2; ++micro) trainer.accumulate(tokens_of(micro));
      const auto gradients = trainer.sharded.gather_full_gradients();
      for (const auto& item : reference.model->named_parameters())
        if (item.value().grad().defined()) {
          EXPECT_THAT(distance(gradients.at(item.key()), item.value().grad()), Le(2e-6)) << item.key();
        }
    });
  }
}

TEST(EveryWorldSize, TrainInBf16WithFp32MastersAndReduction) {
  for (const int world_size : kWorldSizes) {
    const double tolerance =
        world_size == 1 ? 0 : 3e-2;  // one rank computes the same bits; several sum in another order
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      MixedReference reference([](const at::Tensor&) { return at::kBFloat16; });
      fsdp::ShardOptions options;
      options.precision.param_dtype = at::kBFloat16;
      Trainer trainer(mesh, options);
      EXPECT_EQ(trainer.model->blocks[0]->up.scalar_type(), at::kBFloat16);
      for (int step = 0; step < kSteps; ++step)
        EXPECT_THAT(relative(trainer.step(step), reference.step(step)), Le(tolerance)) << "step " << step;
      for (const auto& unit : trainer.sharded.units()) {
        EXPECT_EQ(trainable_part(*unit).shard().scalar_type(), at::kFloat);
        EXPECT_EQ(unit->unsharded_bytes(), chunk_of(*unit) * mesh.world_size() * 2);
      }
      const at::Tensor up = trainer.sharded.gather_full_state().at("block0.up");
      EXPECT_FALSE(at::equal(up, up.to(at::kBFloat16).to(at::kFloat))) << "the master keeps what bf16 would lose";
      if (mesh.world_size() == 1) {
        EXPECT_TRUE(at::equal(up, reference.masters.model->named_parameters()["block0.up"]));
      }
    });
  }
}

TEST(Reduction, MayTravelInBf16) {
  Reference reference;
  reference.accumulate(tokens_of(0));
  for (const int world_size : {1, 3})
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      fsdp::ShardOptions options;
      options.precision.reduce_dtype = at::kBFloat16;
      Trainer trainer(mesh, options);
      trainer.accumulate(tokens_of(0));
      EXPECT_EQ(trainable_part(*trainer.sharded.units()[0]).gradient_shard().scalar_type(), at::kFloat);
      const auto gradients = trainer.sharded.gather_full_gradients();
      EXPECT_THAT(distance(gradients.at("block0.up"), reference.model->blocks[0]->up.grad()), Le(2e-2));
    });
}

TEST(SeveralRanks, FreeParametersAfterForwardAndGatherThemInBackward) {
  for (const int world_size : {2, 3, 4}) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      const auto& units = trainer.sharded.units();
      const auto storage_of = [&](int block) { return fsdp::storage_bytes(trainer.model->blocks[block]->up); };
      const std::int64_t root = units.back()->unsharded_bytes(), block = units[0]->unsharded_bytes();
      EXPECT_EQ(trainer.sharded.memory().gathered_bytes_now, 0);

      for (int iteration = 0; iteration < 2; ++iteration) {
        const at::Tensor loss = trainer.model->forward(tokens_of(0));
        for (int i = 0; i < 3; ++i) EXPECT_EQ(storage_of(i), 0) << "block " << i;
        EXPECT_EQ(trainer.sharded.memory().gathered_bytes_now, root);
        loss.backward();
        EXPECT_EQ(trainer.sharded.memory().gathered_bytes_now, 0);
        EXPECT_EQ(trainer.sharded.memory().unreduced_bytes_now, 0);
        EXPECT_THAT(trainer.sharded.memory().gathered_bytes_peak, Le(root + 2 * block)) << "one unit and one ahead";
        EXPECT_EQ(units[0]->gathers(), 2 * (iteration + 1));
        EXPECT_EQ(units.back()->gathers(), iteration + 1) << "the root stays gathered until backward";
      }
      EXPECT_EQ(units[0]->state(), fsdp::Unit::State::kSharded);
      EXPECT_EQ(trainer.sharded.memory().shard_bytes, (chunk_of(*units.back()) + 3 * chunk_of(*units[0])) * 4);
    });
  }
}

TEST(Prefetch, FollowsTheRecordedOrderForwardAndTheReverseOrderBackward) {
  run_ranks(2, [](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    const auto& units = trainer.sharded.units();
    const auto prefetches = [&] {
      std::vector<std::int64_t> counts;
      for (const auto& unit : units) counts.push_back(unit->prefetches());
      return counts;
    };
    trainer.step(0);
    EXPECT_EQ(prefetches(), (std::vector<std::int64_t>{1, 1, 1, 0})) << "the first forward has no order yet";
    trainer.step(1);
    EXPECT_EQ(prefetches(), (std::vector<std::int64_t>{3, 3, 3, 0})) << "now forward and backward";
  });
}

TEST(Prefetch, GathersTheNextUnitBeforeThisOneComputes) {
  run_ranks(2, [](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    trainer.step(0);
    const auto inner = trainer.model->blocks[0]->wrap;
    trainer.model->blocks[0]->wrap = [&](at::Tensor x, const std::function<at::Tensor(at::Tensor)>& forward) {
      return inner(x, [&](at::Tensor in) {
        EXPECT_EQ(trainer.sharded.units()[1]->state(), fsdp::Unit::State::kGathering);
        EXPECT_EQ(trainer.sharded.units()[2]->state(), fsdp::Unit::State::kSharded);
        return forward(in);
      });
    };
    trainer.step(1);
  });
}

TEST(Prefetch, SurvivesAChangedOrderOfUnits) {
  Reference reference;
  std::vector<double> truth;
  for (int step = 0; step < 4; ++step) {
    std::reverse(reference.model->blocks.begin(), reference.model->blocks.end());
    truth.push_back(reference.step(step));
  }
  run_ranks(3, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    for (int step = 0; step < 4; ++step) {
      std::reverse(trainer.model->blocks.begin(), trainer.model->blocks.end());
      EXPECT_THAT(relative(trainer.step(step), truth[step]), Le(1e-5));
      EXPECT_EQ(trainer.sharded.memory().gathered_bytes_now, 0);
    }
  });
}

TEST(EveryWorldSize, CountTheBytesThatTravel) {
  for (const int world_size : kWorldSizes) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      const auto& units = trainer.sharded.units();
      const std::int64_t before = mesh.wire_bytes();
      trainer.model->forward(tokens_of(0)).backward();
      const std::int64_t others = mesh.world_size() - 1;
      std::int64_t want = 0, flags = 0;
      for (std::size_t i = 0; i < units.size(); ++i) {
        const std::int64_t gathers = i + 1 == units.size() ? 1 : 2;
        want += chunk_of(*units[i]) * 4 * others * gathers;
        want += trainable_part(*units[i]).layout().chunk() * 4 * others;  // one reduction, of what trains
        flags += static_cast<std::int64_t>(trainable_part(*units[i]).layout().parameters().size());
      }
      want += 2 * flags * others / mesh.world_size();  // who took part
      EXPECT_EQ(mesh.wire_bytes() - before, want);
    });
  }
}

TEST(EveryWorldSize, LeaveFrozenAndUnusedParametersAlone) {
  for (const int world_size : kWorldSizes) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      for (int step = 0; step < 3; ++step) trainer.step(step);
      const auto state = trainer.sharded.gather_full_state();
      const auto fresh = make_model();
      EXPECT_TRUE(at::equal(state.at("block1.frozen"), fresh->blocks[1]->frozen));
      EXPECT_TRUE(at::equal(state.at("block1.unused"), fresh->blocks[1]->unused));
      EXPECT_FALSE(at::equal(state.at("block1.tiny"), fresh->blocks[1]->tiny));
    });
  }
}

TEST(EveryWorldSize, GiveAliasesOfTiedParameters) {
  for (const int world_size : kWorldSizes) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      trainer.step(0);
      const auto state = trainer.sharded.gather_full_state();
      EXPECT_TRUE(state.at("head").is_same(state.at("embedding")));
      EXPECT_TRUE(trainer.model->head.is_same(trainer.model->embedding)) << "still one tensor in the module";
      EXPECT_EQ(trainer.sharded.parameter_count(),
                kVocabulary * kWidth + kWidth + 3 * (kWidth + 2 * kHidden * kWidth + kHidden + 3 + 5 + 7));
    });
  }
}

TEST(EveryWorldSize, EvaluateWithoutGradAndKeepNothingGathered) {
  for (const int world_size : kWorldSizes) {
    Reference reference;
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      trainer.step(0);
      const at::NoGradGuard no_grad;
      const double first = trainer.model->forward(tokens_of(5)).item<double>();
      EXPECT_EQ(trainer.model->forward(tokens_of(5)).item<double>(), first);
      EXPECT_EQ(trainer.sharded.memory().gathered_bytes_now, 0);
      EXPECT_NE(first, reference.model->forward(tokens_of(5)).item<double>()) << "it has learnt one step";
    });
  }
}

TEST(EveryWorldSize, UpdateParametersThatWereLeftGathered) {
  for (const int world_size : kWorldSizes) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      trainer.accumulate(tokens_of(0));
      for (const auto& unit : trainer.sharded.units()) unit->wait_unsharded();
      trainer.optimizer->step(1e-2);
      for (const auto& unit : trainer.sharded.units()) unit->wait_unsharded();
      const auto state = trainer.sharded.gather_full_state();
      EXPECT_TRUE(at::equal(trainer.model->blocks[2]->down, state.at("block2.down")));
    });
  }
}

TEST(TwoRanks, TakeRankZerosParametersWhenAsked) {
  run_ranks(2, [](fsdp::DeviceMesh& mesh) {
    fsdp::ShardOptions options;
    options.sync_module_states = true;
    Trainer trainer(mesh, options, /*seed=*/7 + mesh.rank());
    const auto state = trainer.sharded.gather_full_state();
    for (const auto& item : make_model(7)->named_parameters())
      EXPECT_TRUE(at::equal(state.at(item.key()), item.value())) << item.key();
  });
}

TEST(EveryWorldSize, RunOneUnitTwiceInAForward) {
  for (const int world_size : kWorldSizes) {
    Reference reference;
    reference.model->passes = 2;
    std::vector<double> truth;
    for (int step = 0; step < 5; ++step) truth.push_back(reference.step(step));
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      trainer.model->passes = 2;
      for (int step = 0; step < 5; ++step) EXPECT_THAT(relative(trainer.step(step), truth[step]), Le(1e-5)) << step;
    });
  }
}

TEST(EveryWorldSize, LoadFullTensors) {
  for (const int world_size : kWorldSizes) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      std::map<std::string, at::Tensor> other;
      for (const auto& item : make_model(11)->named_parameters()) other[item.key()] = item.value().detach();
      trainer.sharded.load_full_state(other);
      const auto state = trainer.sharded.gather_full_state(/*rank_zero_only=*/true);
      EXPECT_EQ(state.size(), mesh.rank() == 0 ? other.size() : 0);
      for (const auto& [name, tensor] : state) EXPECT_TRUE(at::equal(tensor, other.at(name))) << name;
      other["norm"] = at::ones({2});
      EXPECT_THAT(error_of([&] { trainer.sharded.load_full_state(other); }), HasSubstr("norm has shape [2]"));
      other.erase("norm");
      EXPECT_THAT(error_of([&] { trainer.sharded.load_full_state(other); }), HasSubstr("no tensor for norm"));
    });
  }
}

}  // namespace
