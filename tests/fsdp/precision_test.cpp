// Goal: a unit computes, reduces, returns and keeps its buffers in the formats asked for, and divides gradients as
// asked. Method: known sums in the open, and the unsharded reference in mixed precision for whole trainings.
#include "fsdp/engine/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fsdp/error_of.h"
#include "tests/fsdp/ranks.h"
#include "tests/fsdp/small_model.h"
#include "tests/fsdp/thread_ranks.h"

namespace {

using fsdp::divide_factors;
using fsdp::DivideFactors;
using ::testing::HasSubstr;
using ::testing::Le;

/// y = x * weight.
struct Scale : torch::nn::Module {
  Scale() : weight(register_parameter("weight", at::full({4}, 2.0))) {}
  at::Tensor weight;
};

/// The reduced gradient of Scale's weight after backward passes in which each rank's gradient is `of_rank(rank)`.
at::Tensor reduced(fsdp::DeviceMesh& mesh, const fsdp::Precision& precision, const std::function<double(int)>& of_rank,
                   int passes = 1) {
  const auto module = std::make_shared<Scale>();
  fsdp::ShardedModel sharded(module, mesh);
  const auto unit = sharded.fully_shard(module, {.precision = precision});
  for (int pass = 0; pass < passes; ++pass)
    unit->run(at::full({4}, of_rank(mesh.rank())), [&](at::Tensor x) { return x * module->weight; }).sum().backward();
  return sharded.gather_full_gradients().at("weight");
}

// The factors are those of _get_gradient_divide_factors() in PyTorch 2.11.
TEST(DivideFactors, AreThoseOfPyTorch) {
  const DivideFactors in_fp16[] = {{1, 1}, {2, 1}, {2, 1.5}, {2, 2}, {2, 2.5}, {4, 1.5}, {2, 3.5}, {4, 2}};
  for (int ranks = 1; ranks <= 8; ++ranks) {
    EXPECT_EQ(divide_factors(at::kHalf, ranks), in_fp16[ranks - 1]) << ranks;
    EXPECT_EQ(divide_factors(at::kFloat, ranks), (DivideFactors{1, 1.0 * ranks}));
    EXPECT_EQ(divide_factors(at::kBFloat16, ranks), (DivideFactors{1, 1.0 * ranks}));
    EXPECT_EQ(divide_factors(at::kHalf, ranks, 24), (DivideFactors{8, 3}));
    EXPECT_EQ(divide_factors(at::kHalf, ranks, 1.5), (DivideFactors{1, 1.5}));
    EXPECT_EQ(divide_factors(at::kFloat, ranks, 1.5), (DivideFactors{1, 1.5}));
  }
  EXPECT_EQ(divide_factors(at::kHalf, 16), (DivideFactors{4, 4}));
  EXPECT_EQ(divide_factors(at::kHalf, 32), (DivideFactors{8, 4}));
}

TEST(Precision, Fp16TrainsAsTheUnshardedReferenceInFp16) {
  for (const int world_size : kWorldSizes) {
    const double tolerance = world_size == 1 ? 0 : 1e-2;
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      MixedReference reference([](const at::Tensor&) { return at::kHalf; }, at::kHalf);
      fsdp::ShardOptions options;
      options.precision.param_dtype = at::kHalf;
      Trainer trainer(mesh, options);
      EXPECT_EQ(trainer.model->blocks[0]->up.scalar_type(), at::kHalf);
      for (int step = 0; step < 6; ++step)
        EXPECT_THAT(relative(trainer.step(step), reference.step(step)), Le(tolerance)) << "step " << step;
      EXPECT_EQ(trainable_part(*trainer.sharded.units()[0]).shard().scalar_type(), at::kFloat);
    });
  }
}

TEST(Precision, AFp16ReductionOverflowsNotWhereTheMeanFits) {
  for (const int world_size : kWorldSizes) {
    for (const bool replicated : {false, true}) {
      fsdp::MeshOptions mesh_options;
      if (replicated) mesh_options.axes = {{"replicate", world_size}};
      run_thread_ranks(
          world_size,
          [&](fsdp::DeviceMesh& mesh) {
            const fsdp::Precision precision{.param_dtype = at::kHalf, .reduce_dtype = at::kHalf};
            // The sum over three or four ranks does not fit fp16, whose largest number is 65504.
            EXPECT_TRUE(at::equal(reduced(mesh, precision, [](int) { return 30720.0; }), at::full({4}, 30720.0)));
            EXPECT_TRUE(at::equal(reduced(
                                      mesh, precision, [](int) { return 12000.0; }, 2),
                                  at::full({4}, 24000.0)));
          },
          std::chrono::seconds(20), mesh_options);
    }
  }
}

TEST(Precision, AGradientIsDividedByTheFactorAskedFor) {
  for (const int world_size : kWorldSizes) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      for (const double factor : {1.0, 2.0, 0.5, 8.0}) {
        for (const int passes : {1, 2}) {
          run_thread_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
            const fsdp::Precision precision{.reduce_dtype = type, .gradient_divide_factor = factor};
            const double sum = 8.0 * world_size * (world_size + 1) / 2;
            const at::Tensor got = reduced(
                mesh, precision, [](int rank) { return 8.0 * (rank + 1); }, passes);
            EXPECT_TRUE(at::equal(got, at::full({4}, passes * sum / factor))) << type << " " << factor << "\n" << got;
          });
        }
      }
    }
  }
}

TEST(Precision, OutputsAreCastAsAskedAndTheirGradientsComeBack) {
  run_ranks(2, [](fsdp::DeviceMesh& mesh) {
    const auto module = std::make_shared<Scale>();
    fsdp::ShardedModel sharded(module, mesh);
    const auto unit =
        sharded.fully_shard(module, {.precision = {.param_dtype = at::kBFloat16, .output_dtype = at::kFloat}});
    at::Tensor x = at::full({4}, 3.0).requires_grad_();
    const auto outputs = unit->run_list({x}, [&](auto in) {
      return std::vector<at::Tensor>{in[0] * module->weight, at::ones({1}, at::kLong), at::Tensor()};
    });
    EXPECT_EQ(outputs[0].scalar_type(), at::kFloat);
    EXPECT_EQ(outputs[1].scalar_type(), at::kLong);
    EXPECT_FALSE(outputs[2].defined());
    outputs[0].sum().backward();
    EXPECT_TRUE(at::equal(x.grad(), at::full({4}, 2.0)));
    EXPECT_TRUE(at::equal(sharded.gather_full_gradients().at("weight"), at::full({4}, 3.0)));
    EXPECT_EQ(sharded.memory().gathered_bytes_now, 0) << "the cast's gradient starts the unit's backward";
  });
}

struct WithBuffers : torch::nn::Module {
  explicit WithBuffers(bool has_child = true) {
    mean = register_buffer("mean", at::full({3}, 1.0 / 3));
    count = register_buffer("count", at::ones({1}, at::kLong));
    register_parameter("weight", at::ones({3}));
    if (has_child) child = register_module("child", std::make_shared<WithBuffers>(false));
  }
  at::Tensor mean, count;
  std::shared_ptr<WithBuffers> child;
};

TEST(Precision, BuffersAreCastOnceByTheirOwnUnit) {
  for (const bool child_is_a_unit : {true, false}) {
    run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
      const auto module = std::make_shared<WithBuffers>();
      fsdp::ShardedModel sharded(module, mesh);
      if (child_is_a_unit) sharded.fully_shard(module->child);
      sharded.fully_shard(module, {.precision = {.buffer_dtype = at::kHalf}});
      EXPECT_EQ(module->mean.scalar_type(), at::kHalf) << "the member sees the cast";
      EXPECT_EQ(module->named_buffers()["mean"].scalar_type(), at::kHalf);
      EXPECT_TRUE(at::equal(module->mean, at::full({3}, 1.0 / 3).to(at::kHalf)));
      EXPECT_EQ(module->count.scalar_type(), at::kLong);
      EXPECT_EQ(module->child->mean.scalar_type(), child_is_a_unit ? at::kFloat : at::kHalf);
    });
  }
}

TEST(Precision, RefusesByNameWhatIsNoFormatOrFactor) {
  run_ranks(1, [](fsdp::DeviceMesh& mesh) {
    const auto error = [&](const fsdp::Precision& precision) {
      const auto module = std::make_shared<WithBuffers>();
      fsdp::ShardedModel sharded(module, mesh);
      return error_of([&] { sharded.fully_shard(module->child, {.precision = precision}); });
    };
    EXPECT_THAT(error({.reduce_dtype = at::kDouble}), HasSubstr("unit child: parameter child.weight: param_dtype"));
    EXPECT_THAT(error({.output_dtype = at::kLong}), HasSubstr("unit child: output_dtype must be float32"));
    EXPECT_THAT(error({.buffer_dtype = at::kLong}), HasSubstr("unit child: buffer_dtype must be float32"));
    EXPECT_THAT(error({.gradient_divide_factor = 0}), HasSubstr("unit child: gradient_divide_factor 0"));
  });
}

}  // namespace
