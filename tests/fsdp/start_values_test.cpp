// Goal: a module that was built without memory starts with the right values, at any world size.
// Method: the small model on the meta device, against the same model drawn or read as a whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "fsdp/engine/initialize.h"
#include "fsdp/files/tensor_files.h"
#include "fsdp/text/json.h"
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/ranks.h"
#include "tests/fsdp/small_model.h"
#include "tests/fsdp/temporary_folder.h"
#include "tests/fsdp/thread_ranks.h"

namespace {

using fsdp::MetaDeviceGuard;
using ::testing::HasSubstr;
using ::testing::Lt;
namespace fs = std::filesystem;
using State = std::map<std::string, at::Tensor>;

void draw_normal(const std::string&, const at::Tensor& values, at::Generator& random) {
  values.normal_(1, 0.5, random);
}

std::shared_ptr<SmallModel> meta_model() {
  const MetaDeviceGuard guard;
  return std::make_shared<SmallModel>();
}

/// A sharded small model that was built on the meta device.
struct Sharded {
  explicit Sharded(fsdp::DeviceMesh& mesh, const fsdp::ShardOptions& options = {})
      : model(meta_model()), sharded(model, mesh) {
    for (const auto& block : model->blocks) block->wrap = wrapper(sharded.fully_shard(block, options));
    model->wrap = wrapper(sharded.fully_shard(model, options));
  }
  std::shared_ptr<SmallModel> model;
  fsdp::ShardedModel sharded;
};

State drawn_whole(std::uint64_t seed) {
  const auto model = std::make_shared<SmallModel>();
  fsdp::initialize(*model, seed, draw_normal);
  State state;
  for (const auto& item : model->named_parameters()) state[item.key()] = item.value().detach();
  return state;
}

void expect_same_values(const State& got, const State& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, value] : want) EXPECT_TRUE(at::equal(got.at(name), value)) << name;
}

TEST(MetaDevice, GivesAnyModuleSizesAndNoBytes) {
  torch::nn::Sequential module(nullptr);
  {
    const MetaDeviceGuard guard;
    module = torch::nn::Sequential(torch::nn::Linear(1 << 20, 1 << 20),
                                   torch::nn::LayerNorm(torch::nn::LayerNormOptions({1 << 20})));
    EXPECT_FALSE(at::zeros({2}, at::kCPU).is_meta()) << "a named device is kept";
  }
  for (const auto& parameter : module->parameters()) {
    EXPECT_TRUE(parameter.is_meta());
    EXPECT_TRUE(parameter.requires_grad());
  }
  EXPECT_EQ(module->parameters()[0].numel(), std::int64_t{1} << 40);
  EXPECT_FALSE(at::zeros({2}).is_meta()) << "the guard has gone";
}

TEST(StartValues, DrawnDoNotDependOnTheWorldSize) {
  const State want = drawn_whole(5);
  for (const int world_size : kWorldSizes) {
    run_thread_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      Sharded model(mesh);
      fsdp::initialize(model.sharded, 5, draw_normal);
      expect_same_values(model.sharded.gather_full_state(), want);
    });
  }
}

struct Large : torch::nn::Module {
  Large() {
    weight = register_parameter("weight", at::empty({3, 70'001}));  // more than three blocks, not a multiple of one
    other = register_parameter("other", at::empty({3, 70'001}));
  }
  at::Tensor weight, other;
};

TEST(StartValues, OfALargeParameterAreDrawnBlockByBlock) {
  Large whole;
  fsdp::initialize(whole, 9, draw_normal);
  const at::Tensor flat = whole.weight.detach().view({-1});
  EXPECT_NEAR(flat.mean().item<double>(), 1, 0.01);
  EXPECT_NEAR(flat.std().item<double>(), 0.5, 0.01);
  EXPECT_FALSE(at::equal(flat.narrow(0, 0, 1000), flat.narrow(0, fsdp::kDrawnBlock, 1000))) << "blocks differ";
  EXPECT_FALSE(at::equal(flat, whole.other.detach().view({-1}))) << "names differ";
  Large second;
  fsdp::initialize(second, 10, draw_normal);
  EXPECT_FALSE(at::equal(whole.weight, second.weight)) << "seeds differ";
  for (const int world_size : {1, 3}) {
    run_thread_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      const auto model = std::make_shared<Large>();
      fsdp::ShardedModel sharded(model, mesh);
      sharded.fully_shard(model);
      fsdp::initialize(sharded, 9, draw_normal);
      expect_same_values(sharded.gather_full_state(),
                         {{"weight", whole.weight.detach()}, {"other", whole.other.detach()}});
    });
  }
}

TEST(StartValues, TrainLikeAModelThatHadThemAsAWhole) {
  for (const int world_size : {1, 2}) {
    run_thread_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      Trainer whole(mesh);
      whole.sharded.load_full_state(drawn_whole(5));
      Sharded meta(mesh);
      fsdp::initialize(meta.sharded, 5, draw_normal);
      fsdp::AdamW optimizer(meta.sharded, {});
      for (int step = 0; step < 3; ++step) {
        const double want = whole.step(step);
        const at::Tensor loss = meta.model->forward(part_of(tokens_of(step), mesh.rank(), mesh.world_size()));
        loss.backward();
        EXPECT_EQ(mesh.shard().all_reduce(loss.item<double>()) / mesh.world_size(), want) << "step " << step;
        optimizer.step(1e-2);
        meta.sharded.zero_grad();
      }
    });
  }
}

TEST(StartValues, AreMissedBeforeTheyAreUsed) {
  fsdp::DeviceMesh alone(nullptr, 0, 1, {});
  Sharded model(alone);
  EXPECT_THAT(error_of([&] { model.model->forward(tokens_of(0)); }),
              HasSubstr("unit root: run() needs values, and the parameters were built on the meta device; call "
                        "initialize(), load_tensors()"));
  EXPECT_THAT(error_of([&] { model.sharded.gather_full_state(); }), HasSubstr("gather_full_state needs values"));
  EXPECT_THAT(error_of([&] {
                fsdp::ShardOptions options;
                options.sync_module_states = true;
                Sharded synced(alone, options);
              }),
              HasSubstr("sync_module_states copies values, and parameter block0.norm is on the meta device"));
}

TEST(StartValues, OfABufferAreWantedAtOnce) {
  struct WithBuffer : torch::nn::Module {
    WithBuffer() { register_buffer("table", at::ones({3})); }
  };
  fsdp::DeviceMesh alone(nullptr, 0, 1, {});
  const auto model = [] {
    const MetaDeviceGuard guard;
    return std::make_shared<WithBuffer>();
  }();
  fsdp::ShardedModel sharded(model, alone);
  EXPECT_THAT(error_of([&] { sharded.fully_shard(model); }), HasSubstr("buffer table of unit root is on the meta"));
}

/// The parameters of a model as files, without the tied head, in `type`.
void write_model(const fs::path& folder, const State& state, at::ScalarType type, bool indexed) {
  std::vector<std::pair<std::string, at::Tensor>> files[2];
  fsdp::Json map = fsdp::Json::Object();
  for (const auto& [name, value] : state) {
    if (name == "head") continue;
    const int file = indexed && name > "block1" ? 1 : 0;
    files[file].emplace_back(name, value.to(type));
    map[name] = "part" + std::to_string(file) + ".safetensors";
  }
  fs::create_directories(folder);
  if (!indexed) {
    fsdp::write_safetensors(folder / fsdp::kModelFile, files[0]);
    return;
  }
  for (int i = 0; i < 2; ++i) fsdp::write_safetensors(folder / ("part" + std::to_string(i) + ".safetensors"), files[i]);
  fsdp::Json index;
  index["weight_map"] = map;
  std::ofstream(folder / fsdp::kModelIndex) << index.dump();
}

TEST(TensorFiles, AreLoadedFromOneFileOrAnIndexInAnyDtype) {
  const State state = drawn_whole(3);
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const bool indexed : {false, true}) {
      const TemporaryFolder folder;
      write_model(folder.path(), state, type, indexed);
      State want;
      for (const auto& [name, value] : state) want[name] = value.to(type).to(at::kFloat);
      for (const int world_size : {1, 3}) {
        run_thread_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
          Sharded model(mesh);
          fsdp::load_tensors(model.sharded, fsdp::TensorFiles(folder.path()));
          expect_same_values(model.sharded.gather_full_state(), want);
        });
      }
    }
  }
}

TEST(TensorFiles, ThatDoNotFitNameEveryFindingAndChangeNothing) {
  const TemporaryFolder folder;
  fsdp::DeviceMesh alone(nullptr, 0, 1, {});
  Sharded model(alone);
  fsdp::initialize(model.sharded, 1, draw_normal);
  const State before = model.sharded.gather_full_state();
  State wrong = drawn_whole(2);
  wrong.erase("block0.up");
  wrong["block0.down"] = at::zeros({29, 13});
  wrong["block0.bias"] = wrong["block0.bias"].to(at::kInt);
  wrong["block0.extra"] = at::zeros({2});
  std::vector<std::pair<std::string, at::Tensor>> tensors(wrong.begin(), wrong.end());
  fsdp::write_safetensors(folder / "model.safetensors", tensors);
  const fsdp::TensorFiles files(folder.path());
  const std::string error = error_of([&] { fsdp::load_tensors(model.sharded, files); });
  EXPECT_THAT(error, HasSubstr(folder.path().native() + ": "));
  EXPECT_THAT(error, HasSubstr("no tensor block0.up [29, 13]"));
  EXPECT_THAT(error, HasSubstr("block0.down is [29, 13], the model wants [13, 29]"));
  EXPECT_THAT(error, HasSubstr("block0.bias is Int, want float32, bfloat16 or float16"));
  EXPECT_THAT(error, HasSubstr("the model has no parameter for tensor block0.extra"));
  EXPECT_THAT(error, HasSubstr("; give a model of the same architecture and sizes"));
  expect_same_values(model.sharded.gather_full_state(), before);
}

TEST(TensorFiles, ThatAreMissingOrBrokenAreNamed) {
  const TemporaryFolder folder;
  const auto error = [&] { return error_of([&] { fsdp::TensorFiles files(folder.path()); }); };
  EXPECT_THAT(error(), HasSubstr("holds neither model.safetensors nor model.safetensors.index.json"));
  const auto index = [&](const std::string& text) { std::ofstream(folder / fsdp::kModelIndex) << text; };
  index("{");
  EXPECT_THAT(error(), HasSubstr("model.safetensors.index.json: "));
  index(R"({"weight_map":{"a":"../a.safetensors"}})");
  EXPECT_THAT(error(), HasSubstr("\"../a.safetensors\" leaves the folder"));
  index(R"({"weight_map":{"a":"a.safetensors"}})");
  EXPECT_THAT(error(), HasSubstr("cannot open " + (folder / "a.safetensors").native()));
  fsdp::write_safetensors(folder / "a.safetensors", {{"b", at::zeros({2})}});
  EXPECT_THAT(error(), HasSubstr("tensor a is not in a.safetensors"));
  EXPECT_THAT(error_of([&] { fsdp::TensorFiles files(folder / "none"); }), HasSubstr("cannot open"));
}

TEST(SafetensorsFile, IsReadPartByPart) {
  const TemporaryFolder folder;
  const std::int64_t count = fsdp::SafetensorsReader::kReadBytes / 2 + 1000;  // more than one buffer of bf16
  const at::Tensor whole = at::arange(count, at::kFloat).remainder_(251).to(at::kBFloat16);
  fsdp::write_safetensors(folder / "a.safetensors", {{"first", at::ones({3})}, {"whole", whole}});
  const fsdp::SafetensorsReader file(folder / "a.safetensors");
  at::Tensor same = at::empty({count - 5}, at::kBFloat16), wide = at::empty({count - 5});
  file.read("whole", 5, same);
  file.read("whole", 5, wide);
  EXPECT_TRUE(at::equal(same, whole.narrow(0, 5, count - 5)));
  EXPECT_TRUE(at::equal(wide, whole.narrow(0, 5, count - 5).to(at::kFloat)));
  EXPECT_THAT(error_of([&] { file.read("whole", 6, wide); }), HasSubstr("which has " + std::to_string(count)));
  EXPECT_THAT(error_of([&] { file.read("none", 0, wide); }), HasSubstr("no tensor \"none\""));
}

}  // namespace
