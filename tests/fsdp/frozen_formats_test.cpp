// Goal: parameters that never train are kept and sent in fewer bits, and everything else is as without that.
// Method: blocks of frozen matrices with adapters on 1 to 4 ranks, beside the same blocks with the matrices' quantised
// values in plain autograd; bytes are counted beside their formulas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "fsdp/engine/initialize.h"
#include "fsdp/engine/recompute.h"
#include "fsdp/files/checkpoint.h"
#include "fsdp/files/export.h"
#include "fsdp/files/safetensors.h"
#include "fsdp/optim/average.h"
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/ranks.h"
#include "tests/fsdp/small_model.h"
#include "tests/fsdp/temporary_folder.h"

namespace {

using fsdp::FrozenFormat;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Le;

/// Matrices of 2,240 elements, which are 35 blocks of nf4 and nine of int8, the last one not whole; and one of 377.
struct AdaptedBlock : torch::nn::Module {
  static constexpr std::int64_t kWide = 40, kInner = 56, kRank = 3;
  AdaptedBlock() {
    first = register_parameter("first", at::randn({kInner, kWide}) * 0.2, /*requires_grad=*/false);
    second = register_parameter("second", at::randn({kWide, kInner}) * 0.2, /*requires_grad=*/false);
    odd = register_parameter("odd", at::randn({13, 29}) * 0.2, /*requires_grad=*/false);
    bias = register_parameter("bias", at::randn({kInner}) * 0.1, /*requires_grad=*/false);
    down = register_parameter("down", at::randn({kRank, kWide}) * 0.2);
    up = register_parameter("up", at::randn({kInner, kRank}) * 0.2);
  }
  at::Tensor forward(at::Tensor x) {
    return wrap ? wrap(x, [this](at::Tensor in) { return compute(in); }) : compute(x);
  }
  at::Tensor compute(const at::Tensor& x) {
    if (seen) seen(*this);
    const at::Tensor adapted = at::matmul(at::matmul(x, down.t()), up.t());
    const at::Tensor hidden = at::gelu(at::matmul(x, first.t()) + bias + adapted);
    return x + at::matmul(hidden, second.t()) * (1 + odd.sum());
  }
  at::Tensor first, second, odd, bias, down, up;
  Wrap wrap;
  std::function<void(const AdaptedBlock&)> seen;  // called in each forward
};

struct AdaptedModel : torch::nn::Module {
  explicit AdaptedModel(int count = 3) {
    for (int i = 0; i < count; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), std::make_shared<AdaptedBlock>()));
    norm = register_parameter("norm", at::ones({AdaptedBlock::kWide}));
  }
  at::Tensor forward(at::Tensor x) {
    return wrap ? wrap(x, [this](at::Tensor in) { return compute(in); }) : compute(x);
  }
  at::Tensor compute(at::Tensor x) {
    for (const auto& block : blocks) x = block->forward(x);
    return normalise(x.to(at::kFloat), norm.to(at::kFloat)).square().mul(x.to(at::kFloat).sigmoid()).mean();
  }
  std::vector<std::shared_ptr<AdaptedBlock>> blocks;
  at::Tensor norm;
  Wrap wrap;
};

std::shared_ptr<AdaptedModel> make_adapted() {
  static std::mutex generator;
  const std::lock_guard<std::mutex> lock(generator);
  at::manual_seed(11);
  return std::make_shared<AdaptedModel>();
}

bool is_matrix(const fsdp::ParameterInfo& parameter) {
  return parameter.shape.size() == 2;
}

fsdp::ShardOptions options_of(FrozenFormat format, at::ScalarType dtype = at::kFloat) {
  fsdp::ShardOptions options;
  options.precision.param_dtype = dtype;
  options.frozen_format = [format](const fsdp::ParameterInfo& parameter) {
    return is_matrix(parameter) ? format : FrozenFormat::kPlain;
  };
  return options;
}

/// The values that a matrix has in this format.
at::Tensor quantised(const at::Tensor& matrix, FrozenFormat format, at::ScalarType dtype = at::kFloat) {
  const std::int64_t block = block_of(format);
  const fsdp::Packing packing(format, (matrix.numel() + block - 1) / block * block);
  const at::Tensor bytes = at::zeros({packing.bytes()}, at::kByte), values = at::empty({packing.elements()}, dtype);
  packing.quantise(matrix.detach().reshape({-1}), bytes, 0);
  packing.dequantise(bytes, values);
  return values.narrow(0, 0, matrix.numel()).view(matrix.sizes());
}

at::Tensor input_of(int step, int rank, int ranks) {
  const at::Tensor all = at::sin(at::arange(12 * AdaptedBlock::kWide, at::kFloat) * 0.37 + step * 1.3);
  return part_of(all.view({12, AdaptedBlock::kWide}), rank, ranks);
}

/// One rank's sharded model.
struct AdaptedRank {
  AdaptedRank(fsdp::DeviceMesh& m, fsdp::ShardOptions options, bool recomputes = false)
      : mesh(m), model(make_adapted()), sharded(model, mesh) {
    for (const auto& block : model->blocks) {
      const auto unit = sharded.fully_shard(block, options);
      block->wrap = wrapper(unit);
      if (!recomputes) continue;
      block->wrap = [unit, of = block.get()](at::Tensor input, const auto& forward) {
        return unit->run(std::move(input), [&](at::Tensor in) {
          const auto part = [forward](std::vector<at::Tensor> list) {
            return std::vector<at::Tensor>{forward(list[0])};
          };
          return fsdp::recompute({std::move(in)}, part, *of)[0];
        });
      };
    }
    options.reshard_after_forward = false;
    model->wrap = wrapper(sharded.fully_shard(model, options));
    optimizer = std::make_unique<fsdp::AdamW>(sharded);
  }

  double step(int step) {
    const at::Tensor loss = model->forward(input_of(step, mesh.rank(), mesh.world_size()).requires_grad_());
    loss.backward();
    const double mean = mesh.control().all_reduce(loss.item<double>()) / mesh.world_size();
    optimizer->step(1e-2);
    sharded.zero_grad();
    return mean;
  }

  fsdp::DeviceMesh& mesh;
  std::shared_ptr<AdaptedModel> model;
  fsdp::ShardedModel sharded;
  std::unique_ptr<fsdp::Optimizer> optimizer;
};

/// The losses of plain autograd with the matrices' quantised values.
std::vector<double> losses_of_plain(FrozenFormat format, int steps) {
  const auto model = make_adapted();
  for (auto& item : model->named_parameters())
    if (!item.value().requires_grad() && item.value().dim() == 2)
      item.value().set_data(quantised(item.value(), format));
  std::vector<double> losses;
  fsdp::ShardOptions plain;
  run_ranks(1, [&](fsdp::DeviceMesh& mesh) {
    fsdp::ShardedModel sharded(model, mesh);
    model->wrap = wrapper(sharded.fully_shard(model, plain));
    fsdp::AdamW optimizer(sharded);
    for (int step = 0; step < steps; ++step) {
      const at::Tensor loss = model->forward(input_of(step, 0, 1));
      loss.backward();
      losses.push_back(loss.item<double>());
      optimizer.step(1e-2);
      sharded.zero_grad();
    }
  });
  return losses;
}

TEST(FrozenFormats, ValuesAreTheSameBitsAtEveryWorldSizeInForwardAndBackward) {
  const auto plain = make_adapted();
  for (const FrozenFormat format : {FrozenFormat::kNf4, FrozenFormat::kInt8})
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf})
      for (const int world_size : kWorldSizes) {
        run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
          AdaptedRank trained(mesh, options_of(format, dtype), /*recomputes=*/true);
          int looks = 0;
          for (std::size_t b = 0; b < plain->blocks.size(); ++b)
            trained.model->blocks[b]->seen = [&, b](const AdaptedBlock& block) {
              ++looks;
              const AdaptedBlock& want = *plain->blocks[b];
              EXPECT_TRUE(at::equal(block.first, quantised(want.first, format, dtype)));
              EXPECT_TRUE(at::equal(block.second, quantised(want.second, format, dtype)));
              EXPECT_TRUE(at::equal(block.odd, quantised(want.odd, format, dtype)));
              EXPECT_TRUE(at::equal(block.bias, want.bias.to(dtype))) << "no matrix";
            };
          trained.step(0);
          EXPECT_EQ(looks, 6) << "three blocks, each once in forward and once in backward";
          const auto state = trained.sharded.gather_full_state();
          EXPECT_TRUE(
              at::equal(state.at("block1.odd"), quantised(plain->blocks[1]->odd, format, dtype).to(at::kFloat)));
        });
      }
}

TEST(FrozenFormats, TrainAsPlainAutogradWithTheQuantisedValues) {
  constexpr int kSteps = 8;
  for (const FrozenFormat format : {FrozenFormat::kNf4, FrozenFormat::kInt8}) {
    const std::vector<double> truth = losses_of_plain(format, kSteps);
    ASSERT_LT(truth.back(), truth.front());
    const auto check = [&](int world_size, const fsdp::ShardOptions& options, bool recomputes, const char* what) {
      SCOPED_TRACE(std::string(name_of(format)) + ", " + what + ", " + std::to_string(world_size) + " ranks");
      run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
        AdaptedRank trained(mesh, options, recomputes);
        const auto before = trained.sharded.gather_full_state();
        for (int step = 0; step < kSteps; ++step)
          EXPECT_NEAR(trained.step(step), truth[static_cast<std::size_t>(step)], 1e-5 * truth.front()) << step;
        const auto after = trained.sharded.gather_full_state();
        EXPECT_TRUE(at::equal(before.at("block2.first"), after.at("block2.first")));
        EXPECT_FALSE(at::equal(before.at("block2.up"), after.at("block2.up")));
      });
    };
    const fsdp::ShardOptions usual = options_of(format);
    for (const int world_size : kWorldSizes) check(world_size, usual, false, "as usual");
    check(2, usual, true, "recomputed");
    fsdp::ShardOptions other = usual;
    other.prefetch_depth = 0;
    check(3, other, false, "no prefetch");
    other.prefetch_depth = 3;
    check(2, other, false, "deep prefetch");
    other = usual;
    other.reshard_after_forward = other.reshard_after_backward = false;
    check(2, other, false, "gathered once a step");
    other = usual;
    other.tight = true;
    other.alignment = 96;
    check(2, other, false, "tight, with another alignment");
    other = usual;
    other.offload.to_cpu = true;
    check(1, other, false, "offload");
    check(2, other, false, "offload");
  }
}

// The parts of a unit: codes and scales of the matrices, in chunks of whole blocks; and the bias and adapters as ever.
TEST(FrozenFormats, CostTheirCodesAndScalesInMemoryAndOnTheWire) {
  for (const FrozenFormat format : {FrozenFormat::kNf4, FrozenFormat::kInt8})
    for (const int world_size : {1, 2, 4}) {
      run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
        const std::int64_t n = mesh.world_size(), block = block_of(format);
        const auto up_to = [](std::int64_t x, std::int64_t of) { return (x + of - 1) / of * of; };
        const std::int64_t elements = 2 * up_to(2240, block) + up_to(377, block);
        const std::int64_t chunk = up_to((elements + n - 1) / n, block);
        const std::int64_t codes = format == FrozenFormat::kNf4 ? chunk / 2 : chunk;
        const std::int64_t packed = up_to(codes + chunk / block * 4, 64);
        const std::int64_t bias = up_to((64 + n - 1) / n, 32), adapters = up_to((128 + 192 + n - 1) / n, 32);
        fsdp::ShardOptions options = options_of(format, at::kBFloat16);
        options.prefetch_depth = 0;
        const auto model = make_adapted();
        fsdp::ShardedModel sharded(model, mesh);
        const auto unit = sharded.fully_shard(model->blocks[0], options);
        model->blocks[0]->wrap = wrapper(unit);
        EXPECT_EQ(unit->sharded_bytes(), packed + bias * 2 + adapters * 4);
        const std::int64_t before = mesh.wire_bytes();
        const auto loss = model->blocks[0]->forward(at::ones({3, AdaptedBlock::kWide}).requires_grad_()).sum();
        EXPECT_EQ(mesh.wire_bytes() - before, (n - 1) * (packed + bias * 2 + adapters * 2)) << "compressed";
        EXPECT_EQ(sharded.memory().gathered_bytes_now, 0);
        const std::int64_t values = n * (chunk + bias + adapters) * 2;
        const std::int64_t staged = n * (n == 1 ? 0 : packed) + n * (bias + adapters) * 2;
        const std::int64_t of_bias = n == 1 ? 2 * 2 * bias : 0;  // on one rank the shard is the parameter
        const std::int64_t peak = sharded.memory().gathered_bytes_peak;
        EXPECT_EQ(peak, values + staged - of_bias);
        EXPECT_THAT(sharded.memory().pool_bytes, Le(up_to(values, 64) + up_to(staged, 64) + 4 * 64));
        loss.backward();
        EXPECT_EQ(sharded.memory().gathered_bytes_peak, peak) << "no more in backward";
      });
    }
}

// A unit that is gathered ahead has codes and scales alone, so a deeper prefetch costs little.
TEST(FrozenFormats, WhatIsGatheredAheadTakesItsCodesAlone) {
  run_ranks(2, [](fsdp::DeviceMesh& mesh) {
    const auto pool = [&](FrozenFormat format, int depth) {
      fsdp::ShardOptions options = options_of(format);
      options.prefetch_depth = depth;
      AdaptedRank trained(mesh, options);
      for (int step = 0; step < 3; ++step) trained.step(step);
      EXPECT_GT(depth == 0 ? 1 : trained.sharded.units()[1]->prefetches(), 0);
      return trained.sharded.memory().pool_bytes;
    };
    const std::int64_t block = 4 * (2 * 2240 + 377 + 56 + 120 + 168);
    EXPECT_THAT(pool(FrozenFormat::kPlain, 1) - pool(FrozenFormat::kPlain, 0), ::testing::Ge(block));
    const std::int64_t alone = pool(FrozenFormat::kNf4, 0), ahead = pool(FrozenFormat::kNf4, 1);
    EXPECT_EQ(ahead, alone) << "codes of the unit that runs are gone when others are gathered";
    EXPECT_THAT(pool(FrozenFormat::kNf4, 2) - ahead, AllOf(::testing::Ge(block / 10), Le(block * 3 / 10)));
    EXPECT_THAT(ahead, Le(pool(FrozenFormat::kPlain, 1) - block / 2));
  });
}

TEST(FrozenFormats, StayAsTheyAreWhenOthersAreFrozenAndUnfrozen) {
  run_ranks(2, [](fsdp::DeviceMesh& mesh) {
    AdaptedRank trained(mesh, options_of(FrozenFormat::kInt8));
    trained.step(0);
    const auto before = trained.sharded.gather_full_state();
    trained.model->blocks[1]->up.requires_grad_(false);
    trained.model->blocks[0]->bias.requires_grad_(true);
    trained.step(1);
    trained.model->blocks[1]->up.requires_grad_(true);
    trained.step(2);
    const auto after = trained.sharded.gather_full_state();
    for (const char* name : {"block0.first", "block1.first", "block1.odd", "block2.second"})
      EXPECT_TRUE(at::equal(before.at(name), after.at(name))) << name;
    EXPECT_FALSE(at::equal(before.at("block0.bias"), after.at("block0.bias")));
  });
}

TEST(FrozenFormats, RefuseToTrain) {
  for (const int world_size : {1, 2}) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      AdaptedRank trained(mesh, options_of(FrozenFormat::kNf4));
      trained.step(0);
      trained.model->blocks[1]->first.requires_grad_(true);
      const std::string error = error_of([&] { trained.step(1); });
      EXPECT_THAT(error, HasSubstr("unit block1: requires_grad of block1.first was set, and the parameter is kept in "
                                   "nf4, in which nothing trains"));
      EXPECT_THAT(error, HasSubstr("set requires_grad before sharding"));
      trained.sharded.abandon_step();
      trained.model->blocks[1]->first.requires_grad_(false);
      trained.step(1);
    });
  }
}

TEST(FrozenFormats, OfAParameterThatTrainsAreNotAsked) {
  run_ranks(1, [](fsdp::DeviceMesh& mesh) {
    fsdp::ShardOptions options;
    options.frozen_format = [](const fsdp::ParameterInfo& parameter) {
      EXPECT_THAT(parameter.name, ::testing::AnyOf("block0.frozen", "block1.frozen", "block2.frozen"));
      return FrozenFormat::kNf4;
    };
    Trainer trainer(mesh, options);
    trainer.step(0);
  });
}

TEST(FrozenFormats, RefuseWhatWouldNeedValuesOfARank) {
  const TemporaryFolder folder;
  run_ranks(4, [&](fsdp::DeviceMesh& mesh) {
    fsdp::ShardOptions parts = options_of(FrozenFormat::kNf4);
    parts.reshard_to_ranks = 2;
    EXPECT_THAT(error_of([&] { AdaptedRank(mesh, parts); }),
                HasSubstr("unit block0: reshard_to_ranks 2 with parameters that are kept in a frozen_format"));
    AdaptedRank trained(mesh, options_of(FrozenFormat::kNf4));
    EXPECT_THAT(error_of([&] { fsdp::copy_shards(trained.sharded, trained.sharded); }),
                HasSubstr("copy_shards: block0.first is kept in nf4"));
    fsdp::CheckpointOptions where;
    where.folder = folder.path() / "checkpoints";
    EXPECT_THAT(error_of([&] { fsdp::Checkpointer(trained.sharded, *trained.optimizer, where).save({}); }),
                HasSubstr("is kept in nf4, and no checkpoint holds such; leave it out by CheckpointPart::saved"));
  });
}

TEST(FrozenFormats, AreExportedAsTheValuesThatTheyStandFor) {
  const TemporaryFolder folder;
  const auto plain = make_adapted();
  run_ranks(3, [&](fsdp::DeviceMesh& mesh) {
    AdaptedRank trained(mesh, options_of(FrozenFormat::kNf4, at::kBFloat16));
    fsdp::ExportOptions options;
    options.folder = folder.path() / "out";
    fsdp::export_model(trained.sharded, options);
  });
  const fsdp::SafetensorsReader file(folder.path() / "out/model.safetensors");
  EXPECT_TRUE(
      at::equal(file.tensor("block2.odd"), quantised(plain->blocks[2]->odd, FrozenFormat::kNf4, at::kBFloat16)));
}

// 4,195,328 elements come in two parts.
TEST(FrozenFormats, AreFilledPartByPart) {
  struct Large : torch::nn::Module {
    Large() {
      const fsdp::MetaDeviceGuard guard;
      matrix = register_parameter("matrix", at::empty({4097, 1024}), /*requires_grad=*/false);
    }
    at::Tensor matrix;
  };
  at::Tensor values = at::arange(4097 * 1024, at::kFloat).mul_(0.7).sin_().view({4097, 1024});
  for (const int world_size : {1, 3}) {
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      const auto model = std::make_shared<Large>();
      fsdp::ShardedModel sharded(model, mesh);
      sharded.fully_shard(model, options_of(FrozenFormat::kNf4));
      sharded.load_full_state({{"matrix", values}});
      EXPECT_TRUE(at::equal(sharded.gather_full_state().at("matrix"), quantised(values, FrozenFormat::kNf4)));
    });
  }
}

}  // namespace
