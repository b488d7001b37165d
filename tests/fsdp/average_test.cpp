// Goal: a model follows another one by the arithmetic of lerp, at any world size and without communication.
// Method: a teacher beside a student that trains, and at::lerp on their whole parameters.
#include "fsdp/optim/average.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsdp/engine/initialize.h"
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/ranks.h"
#include "tests/fsdp/small_model.h"
#include "tests/fsdp/thread_ranks.h"

namespace {

using ::testing::HasSubstr;
using WholeState = std::map<std::string, at::Tensor>;

void expect_same_state(const WholeState& got, const WholeState& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, value] : want) EXPECT_TRUE(at::equal(got.at(name), value)) << name;
}

TEST(Average, IsLerpAtAnyWorldSizeWithoutCommunication) {
  for (const int world_size : kWorldSizes) {
    run_thread_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      Trainer student(mesh), teacher(mesh, {}, /*seed=*/8);
      WholeState want = teacher.sharded.gather_full_state();
      int step = 0;
      for (const double momentum : {0.996, 0.3, 1.0, 0.9, 0.0}) {
        student.step(step++);
        const WholeState from = student.sharded.gather_full_state();
        for (auto& [name, value] : want) value = at::lerp(value, from.at(name), 1 - momentum);
        const std::int64_t before = mesh.traffic().collectives;
        fsdp::average_into(teacher.sharded, student.sharded, momentum);
        EXPECT_EQ(mesh.traffic().collectives, before);
        SCOPED_TRACE("momentum " + std::to_string(momentum));
        expect_same_state(teacher.sharded.gather_full_state(), want);
      }
    });
  }
}

TEST(Average, IsWhatTheNextForwardComputesWith) {
  fsdp::ShardOptions stays;
  stays.reshard_after_forward = false;
  stays.reshard_after_backward = false;
  run_thread_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer student(mesh), teacher(mesh, stays, /*seed=*/8), judge(mesh, {}, /*seed=*/9);
    const at::NoGradGuard no_grad;
    teacher.model->forward(tokens_of(0));
    fsdp::average_into(teacher.sharded, student.sharded, 0.25);
    judge.sharded.load_full_state(teacher.sharded.gather_full_state());
    EXPECT_TRUE(at::equal(teacher.model->forward(tokens_of(0)), judge.model->forward(tokens_of(0))));
  });
}

TEST(Average, BeginsWithACopyAlsoWhereThereAreNoValuesYet) {
  for (const int world_size : kWorldSizes) {
    run_thread_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      Trainer student(mesh);
      student.step(0);
      const auto model = [] {
        const fsdp::MetaDeviceGuard without_memory;
        return std::make_shared<SmallModel>();
      }();
      fsdp::ShardedModel teacher(model, mesh);
      for (const auto& block : model->blocks) teacher.fully_shard(block);
      teacher.fully_shard(model);
      EXPECT_THAT(error_of([&] { fsdp::average_into(teacher, student.sharded, 0.5); }),
                  HasSubstr("unit block0: average_into needs values"));
      const std::int64_t before = mesh.traffic().collectives;
      fsdp::copy_shards(teacher, student.sharded);
      EXPECT_EQ(mesh.traffic().collectives, before);
      expect_same_state(teacher.gather_full_state(), student.sharded.gather_full_state());
    });
  }
}

// With one rank every slice is a whole parameter, whatever the segments.
TEST(Average, CopiesIntoAnotherDtype) {
  fsdp::DeviceMesh alone(nullptr, 0, 1, {});
  Trainer student(alone);
  const auto model = make_model(8);
  for (at::Tensor& parameter : model->parameters()) parameter.set_requires_grad(false);
  fsdp::ShardedModel frozen(model, alone);
  fsdp::ShardOptions options;
  options.precision.param_dtype = at::kBFloat16;
  frozen.fully_shard(model, options);
  fsdp::copy_shards(frozen, student.sharded);
  const WholeState got = frozen.gather_full_state();
  for (const auto& [name, value] : student.sharded.gather_full_state())
    EXPECT_TRUE(at::equal(got.at(name), value.to(at::kBFloat16).to(at::kFloat))) << name;
}

TEST(Average, OfModelsThatDoNotMatchIsAnErrorOnEveryRankAndChangesNothing) {
  run_thread_ranks(2, [](fsdp::DeviceMesh& mesh) {
    Trainer student(mesh);
    const auto error = [&](fsdp::ShardedModel& slow, double momentum = 0.5) {
      const WholeState before = slow.gather_full_state();
      const std::string text = error_of([&] { fsdp::average_into(slow, student.sharded, momentum); });
      expect_same_state(slow.gather_full_state(), before);
      return text;
    };
    Trainer teacher(mesh, {}, /*seed=*/8);
    EXPECT_THAT(error(teacher.sharded, 1.5), HasSubstr("average_into: momentum 1.5: want 0 to 1"));

    const auto whole = make_model(8);
    fsdp::ShardedModel of_one_unit(whole, mesh);
    of_one_unit.fully_shard(whole);
    EXPECT_THAT(error(of_one_unit), HasSubstr("average_into: ranks hold other slices of embedding than in the other "
                                              "model; shard both into the same units"));

    const auto deeper = make_model(8, /*layers=*/4);
    fsdp::ShardedModel of_more_blocks(deeper, mesh);
    for (const auto& block : deeper->blocks) of_more_blocks.fully_shard(block);
    of_more_blocks.fully_shard(deeper);
    EXPECT_THAT(error(of_more_blocks), HasSubstr("average_into: the other model has no parameter block3.norm"));

    fsdp::ShardOptions half;
    half.precision.param_dtype = at::kBFloat16;
    Trainer frozen_in_bf16(mesh, half, /*seed=*/8);
    EXPECT_THAT(error(frozen_in_bf16.sharded),
                HasSubstr("average_into: parameter block0.frozen is kept in BFloat16, in which an average stands"));
  });
}

}  // namespace
