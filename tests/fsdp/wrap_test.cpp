// Goal: policies choose the modules that those of PyTorch's FSDP1 choose, and what they choose trains as if it had been
// sharded by hand. Method: the cases of PyTorch's test_wrap.py, whose results _recursive_wrap() of PyTorch 2.11 gave.
#include "fsdp/engine/wrap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>

#include "tests/fsdp/error_of.h"
#include "tests/fsdp/small_model.h"
#include "tests/fsdp/thread_ranks.h"

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using torch::nn::Linear;
using Modules = std::vector<std::shared_ptr<torch::nn::Module>>;

/// Modules by number, as in PyTorch's nn.Sequential. Sequential of the C++ front end cannot hold another.
struct Group : torch::nn::Module {
  explicit Group(const Modules& modules) {
    for (std::size_t i = 0; i < modules.size(); ++i) register_module(std::to_string(i), modules[i]);
  }
};

std::shared_ptr<Group> group(const Modules& modules) {
  return std::make_shared<Group>(modules);
}

std::shared_ptr<torch::nn::Module> linear(int width) {
  return Linear(width, width).ptr();
}

/// The paths of the chosen modules; the root is "root".
std::vector<std::string> chosen(const std::shared_ptr<torch::nn::Module>& root, const fsdp::WrapPolicy& policy) {
  std::vector<std::string> out;
  for (const auto& module : fsdp::modules_to_wrap(root, policy))
    for (const auto& item : root->named_modules())
      if (item.value() == module) out.push_back(item.key().empty() ? "root" : item.key());
  return out;
}

/// Four linear layers of 30 elements.
std::shared_ptr<torch::nn::Module> nested() {
  return group({linear(5), linear(5), group({linear(5), linear(5)})});
}

TEST(WrapBySize, ChoosesWhatIsLargeEnoughWithoutItsChosenChildren) {
  EXPECT_THAT(chosen(nested(), fsdp::wrap_by_size(40)), ElementsAre("2", "root"));
  EXPECT_THAT(chosen(nested(), fsdp::wrap_by_size(30)), ElementsAre("0", "1", "2.0", "2.1"));
  EXPECT_THAT(chosen(nested(), fsdp::wrap_by_size(61)), ElementsAre("root"));
  EXPECT_THAT(chosen(nested(), fsdp::wrap_by_size(121)), IsEmpty());
  EXPECT_THAT(error_of([] { fsdp::wrap_by_size(0); }), HasSubstr("min_numel 0: want 1 or more"));
}

TEST(WrapBySize, LeavesListsOutButNotTheirChildren) {
  const torch::nn::ModuleList list(linear(10), linear(10));
  EXPECT_THAT(chosen(list.ptr(), fsdp::wrap_by_size(40)), ElementsAre("0", "1"));
  const auto is_linear = [](const torch::nn::Module& module) {
    return dynamic_cast<const torch::nn::LinearImpl*>(&module) != nullptr;
  };
  EXPECT_THAT(chosen(group({linear(10), group({linear(10)})}), fsdp::wrap_by_size(40, {}, is_linear)),
              ElementsAre("1", "root"));
}

TEST(WrapBySize, DoesNotLookIntoLeaves) {
  const auto attention = group({linear(10), torch::nn::MultiheadAttention(100, 1).ptr()});
  EXPECT_THAT(chosen(attention, fsdp::wrap_by_size(40)), ElementsAre("0", "root"));
  const auto is_linear = [](const torch::nn::Module& module) {
    return dynamic_cast<const torch::nn::LinearImpl*>(&module) != nullptr;
  };
  const auto list = group({linear(10), torch::nn::ModuleList(linear(10)).ptr()});
  EXPECT_THAT(chosen(list, fsdp::wrap_by_size(40, is_linear)), ElementsAre("root"));
}

TEST(WrapBySize, CountsATiedParameterOnce) {
  const auto model = make_model(7, 0);  // embedding and head are one parameter, and there is a norm
  const std::int64_t numel = kVocabulary * kWidth + kWidth;
  EXPECT_THAT(chosen(model, fsdp::wrap_by_size(numel)), ElementsAre("root"));
  EXPECT_THAT(chosen(model, fsdp::wrap_by_size(numel + 1)), IsEmpty());
}

TEST(WrapByPredicate, ChoosesChildrenBeforeTheirParents) {
  const auto always = fsdp::wrap_by_predicate([](const torch::nn::Module&) { return true; });
  EXPECT_THAT(chosen(nested(), always), ElementsAre("0", "1", "2.0", "2.1", "2", "root"));
}

TEST(WrapByPredicate, ChoosesAModuleOnceThoughItIsRegisteredTwice) {
  const auto shared = linear(5);
  const auto always = fsdp::wrap_by_predicate([](const torch::nn::Module&) { return true; });
  EXPECT_EQ(fsdp::modules_to_wrap(group({shared, shared}), always).size(), 2u) << "the layer and the root";
}

TEST(WrapByType, ChoosesTheTypesNamed) {
  EXPECT_THAT(chosen(nested(), fsdp::wrap_by_type<torch::nn::LinearImpl>()), ElementsAre("0", "1", "2.0", "2.1"));
  EXPECT_THAT(chosen(make_model(), fsdp::wrap_by_type<Block>()), ElementsAre("block0", "block1", "block2"));
  EXPECT_THAT(chosen(make_model(), (fsdp::wrap_by_type<Block, SmallModel>())),
              ElementsAre("block0", "block1", "block2", "root"));
}

/// The wrapper points of SmallModel, which knows nothing of the engine.
fsdp::SetWrapper point_of(torch::nn::Module& module) {
  const auto at = [](Wrap& wrap) -> fsdp::SetWrapper {
    return [&wrap](fsdp::Wrapper wrapper) {
      wrap = [wrapper](at::Tensor input, const std::function<at::Tensor(at::Tensor)>& forward) {
        return wrapper({std::move(input)}, [&](std::vector<at::Tensor> in) {
          return std::vector<at::Tensor>{forward(std::move(in[0]))};
        })[0];
      };
    };
  };
  if (auto* block = dynamic_cast<Block*>(&module)) return at(block->wrap);
  if (auto* model = dynamic_cast<SmallModel*>(&module)) return at(model->wrap);
  return {};
}

TEST(WrappedModel, TrainsAsOneThatIsShardedByHand) {
  for (const int world_size : {1, 2, 3}) {
    run_thread_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      Trainer by_hand(mesh);
      const auto model = make_model();
      fsdp::ShardedModel sharded(model, mesh);
      const auto units = fsdp::wrap(sharded, model, fsdp::wrap_by_type<Block>(), {.wrap_point_of = point_of});
      std::vector<std::string> names;
      for (const auto& unit : units) names.push_back(unit->name());
      EXPECT_THAT(names, ElementsAre("block0", "block1", "block2", "root"));
      EXPECT_TRUE(units[0]->options().reshard_after_forward);
      EXPECT_FALSE(units[3]->options().reshard_after_forward);
      fsdp::AdamW optimizer(sharded);
      for (int step = 0; step < 4; ++step) {
        by_hand.step(step);
        model->forward(part_of(tokens_of(step), mesh.rank(), mesh.world_size())).backward();
        optimizer.step(1e-2);
        sharded.zero_grad();
      }
      const auto wanted = by_hand.sharded.gather_full_state();
      for (const auto& [name, tensor] : sharded.gather_full_state())
        EXPECT_TRUE(at::equal(tensor, wanted.at(name))) << name;
    });
  }
}

/// y = x * weight, then what is inside.
struct Layer : torch::nn::Module, fsdp::WrapPoint {
  explicit Layer(int deep) : weight(register_parameter("weight", at::full({4}, 2.0))) {
    if (deep > 0) inner = register_module("inner", std::make_shared<Layer>(deep - 1));
  }
  at::Tensor forward(at::Tensor x) {
    return call({std::move(x)}, [this](std::vector<at::Tensor> in) {
      const at::Tensor y = in[0] * weight;
      return std::vector<at::Tensor>{inner ? inner->forward(y) : y};
    })[0];
  }
  at::Tensor weight;
  std::shared_ptr<Layer> inner;
};

TEST(WrappedModel, CallsItsUnitsThroughWrapPoint) {
  run_thread_ranks(2, [](fsdp::DeviceMesh& mesh) {
    const auto model = std::make_shared<Layer>(2);
    EXPECT_TRUE(at::equal(model->forward(at::ones({4})), at::full({4}, 8.0))) << "directly while nothing is wrapped";
    fsdp::ShardedModel sharded(model, mesh);
    const auto units = fsdp::wrap(sharded, model, fsdp::wrap_by_type<Layer>());
    ASSERT_EQ(units.size(), 3u);
    EXPECT_EQ(units.back()->name(), "root");
    const at::Tensor out = model->forward(at::ones({4}));
    EXPECT_TRUE(at::equal(out, at::full({4}, 8.0)));
    out.sum().backward();
    const auto gradients = sharded.gather_full_gradients();
    for (const char* name : {"weight", "inner.weight", "inner.inner.weight"})
      EXPECT_TRUE(at::equal(gradients.at(name), at::full({4}, 4.0))) << name;
    for (const auto& unit : units) EXPECT_GT(unit->gathers(), 0) << unit->name();
  });
}

TEST(WrappedModel, ARootThatNoPolicyChoosesIsAUnitToo) {
  run_thread_ranks(2, [](fsdp::DeviceMesh& mesh) {
    const auto model = std::make_shared<Layer>(1);
    fsdp::ShardedModel sharded(model, mesh);
    const auto none = fsdp::wrap_by_predicate([](const torch::nn::Module&) { return false; });
    fsdp::WrapOptions options;
    options.root.emplace().prefetch_depth = 3;
    const auto units = fsdp::wrap(sharded, model, none, options);
    ASSERT_EQ(units.size(), 1u);
    EXPECT_EQ(units[0]->numel(), 8);
    EXPECT_EQ(units[0]->options().prefetch_depth, 3);
    EXPECT_TRUE(units[0]->options().reshard_after_forward) << "the options of the root are taken as they are";
  });
}

TEST(WrappedModel, GivesAUnitTheOptionsThatAreAskedFor) {
  run_thread_ranks(2, [](fsdp::DeviceMesh& mesh) {
    const auto model = make_model();
    fsdp::ShardedModel sharded(model, mesh);
    fsdp::WrapOptions options;
    options.wrap_point_of = point_of;
    options.children.prefetch_depth = 2;
    options.options_of = [&](const torch::nn::Module& unit, fsdp::ShardOptions given) {
      EXPECT_TRUE(sharded.units().empty()) << "before anything is sharded";
      if (&unit == model->blocks[1].get()) given.prefetch_depth = 5;
      return given;
    };
    const auto units = fsdp::wrap(sharded, model, fsdp::wrap_by_type<Block>(), options);
    std::vector<int> depths;
    for (const auto& unit : units) depths.push_back(unit->options().prefetch_depth);
    EXPECT_THAT(depths, ElementsAre(2, 5, 2, 2));
    EXPECT_FALSE(units[3]->options().reshard_after_forward) << "the root's own options are what it is given";
  });
}

TEST(WrappedModel, AModuleWithoutAWrapperPointIsRefusedByNameBeforeAnythingIsSharded) {
  run_thread_ranks(1, [](fsdp::DeviceMesh& mesh) {
    const auto model = make_model();
    model->register_module("extra", group({linear(4)}));
    fsdp::ShardedModel sharded(model, mesh);
    const auto policy = fsdp::wrap_by_type<Block, torch::nn::LinearImpl>();
    const auto error = error_of([&] { fsdp::wrap(sharded, model, policy, {.wrap_point_of = point_of}); });
    EXPECT_THAT(error, HasSubstr("wrap: module extra.0 (torch::nn::LinearImpl) has no wrapper point"));
    EXPECT_THAT(error_of([&] { fsdp::wrap(sharded, model, fsdp::wrap_by_type<Block>()); }),
                HasSubstr("wrap: module block0"));
    EXPECT_THAT(sharded.units(), IsEmpty());
    EXPECT_FALSE(model->blocks[0]->wrap);
  });
}

}  // namespace
